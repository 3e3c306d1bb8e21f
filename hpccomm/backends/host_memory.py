"""How the ranks of a host get at each other's tensors: where they lie, or in windows that all map."""

from __future__ import annotations

import platform
from typing import Protocol

import torch

from hpccomm.backends.attach import AttachedMemory, own_door
from hpccomm.backends.board import ORDERED
from hpccomm.backends.context import Context
from hpccomm.backends.window import WindowMemory
from hpccomm.errors import BackendError


class HostMemory(Protocol):
    """The memory of all ranks of a group on one host.

    Attributes:
        most_bytes: What a rank can show at once, or None for any size.
    """

    most_bytes: int | None

    def show(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give a dense tensor as the others may read it: itself, or its copy until the next is shown."""
        ...

    def where(self, tensor: torch.Tensor) -> int:
        """Give where the others find a shown tensor."""
        ...

    def read(self, rank: int, where: int, into: torch.Tensor) -> None:
        """Copy what stands there in a rank's memory into a dense tensor."""
        ...


def find(context: Context) -> tuple[HostMemory, str]:
    """Find out how the ranks get at each other's tensors; collective.

    Returns:
        The memory, and why it is not the ranks' own, or nothing where it is.

    Raises:
        BackendError: The ranks are on several hosts, or share no memory; raised on all ranks.
    """
    if not context.topology.one_host:
        raise _unavailable("the ranks are on several hosts")
    if not ORDERED:
        raise _unavailable(f"this processor is no x86-64 but {platform.machine()}")
    attached = AttachedMemory(context.exchange.all_gather(own_door(), "attach"))
    refusals = context.exchange.all_gather(attached.refusal(), "attach")
    refusal = next(filter(None, refusals), "")
    if not refusal:
        return attached, ""
    return WindowMemory(
        context.exchange
    ), f"tensors are copied twice: ranks may not read each other's memory ({refusal})"


def _unavailable(why: str) -> BackendError:
    return BackendError("build backend shm", found=why, remedy="use mpi4py or gloo", everywhere=True)
