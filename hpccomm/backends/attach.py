"""Read the memory of other processes of this host: cross-memory attach, Linux's process_vm_readv.

The kernel copies straight from one process's memory into another's, without a buffer between them. It is allowed
among a user's processes where neither Yama nor a container forbids it. Where ranks live in different process
namespaces, a process number may name another process than it is meant to: `AttachedMemory.refusal` compares a nonce.
"""

from __future__ import annotations

import ctypes
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpccomm.errors import BackendError


class _Piece(ctypes.Structure):
    _fields_ = (("start", ctypes.c_void_p), ("size", ctypes.c_size_t))


_read = ctypes.CDLL(None, use_errno=True).process_vm_readv
_read.restype = ctypes.c_ssize_t
_read.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]

_NONCE = torch.tensor([secrets.randbits(62)], dtype=torch.int64)


@dataclass(frozen=True)
class Door:
    """What another process must know of this one to read its memory, and to see that it reads the right one."""

    pid: int
    address: int
    nonce: int


def own_door() -> Door:
    """Give that of this process."""
    return Door(os.getpid(), _NONCE.data_ptr(), int(_NONCE))


class AttachedMemory:
    """The memory of all ranks of a group, to be read by one thread at a time.

    Args:
        doors: Of all ranks, in rank order.
    """

    most_bytes: int | None = None

    def __init__(self, doors: Sequence[Door]) -> None:
        self._doors = doors
        self._pids = [door.pid for door in doors]
        self._here, self._there = _Piece(), _Piece()
        self._pieces = ctypes.addressof(self._here), ctypes.addressof(self._there)

    def refusal(self) -> str:
        """Say whose memory cannot be read, and why, or nothing where all can."""
        found = torch.zeros(1, dtype=torch.int64)
        for rank, door in enumerate(self._doors):
            try:
                self.read(rank, door.address, found)
            except BackendError as error:
                return f"rank {rank}: {error.found}"
            if int(found) != door.nonce:
                return f"rank {rank}: its process number is another process's here"
        return ""

    def show(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give a tensor as the others may read it: as it lies."""
        return tensor

    def where(self, tensor: torch.Tensor) -> int:
        """Give where the others find a shown tensor."""
        return tensor.data_ptr()

    def read(self, rank: int, where: int, into: torch.Tensor) -> None:
        """Copy what stands there in a rank's memory into a dense tensor of this one.

        Raises:
            BackendError: The rank's process is gone, or may not be read.
        """
        here, there, (own, other) = self._here, self._there, self._pieces
        start, left = into.data_ptr(), into.numel() * into.element_size()
        while left:
            here.start, here.size, there.start, there.size = start, left, where, left
            copied = _read(self._pids[rank], own, 1, other, 1, 0)
            if copied <= 0:
                raise self._failure(rank, ctypes.get_errno())
            start, where, left = start + copied, where + copied, left - copied

    def _failure(self, rank: int, number: int) -> BackendError:
        return BackendError(
            f"read the memory of rank {rank}, process {self._pids[rank]}",
            found=os.strerror(number),
            remedy="see whether that rank still runs; python -m hpccomm.doctor says whether memory may be read here",
        )
