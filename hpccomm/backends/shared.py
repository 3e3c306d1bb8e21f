"""New memory that all ranks of a host map."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from hpccomm.errors import BackendError
from hpccomm.exchange import Exchange, together

_FOLDER = "/dev/shm"


def share(exchange: Exchange, size: int) -> mmap.mmap:
    """Map the same new memory, of zeros, on all ranks of a host; collective.

    Args:
        exchange: Reaches the ranks.
        size: In bytes.

    Raises:
        BackendError: There is no room, or the ranks do not share it; raised on all ranks.
    """
    path = exchange.all_gather(together(exchange, lambda: _create(size) if exchange.rank == 0 else ""))[0]
    try:
        return together(exchange, lambda: _map(path))
    finally:
        if exchange.rank == 0:
            with suppress(OSError):
                Path(path).unlink()


def _create(size: int) -> str:
    try:
        number, path = tempfile.mkstemp(prefix="hpccomm-", dir=_FOLDER)
        try:
            os.posix_fallocate(number, 0, size)
        finally:
            os.close(number)
    except OSError as error:
        raise _unshared(str(error)) from error
    return path


def _map(path: str) -> mmap.mmap:
    try:
        with Path(path).open("r+b") as file:
            return mmap.mmap(file.fileno(), 0)
    except OSError as error:
        raise _unshared(str(error)) from error


def _unshared(why: str) -> BackendError:
    return BackendError(
        f"share memory in {_FOLDER} with the other ranks of this host",
        found=why,
        remedy="give the ranks one /dev/shm (docker run --ipc=host …), or use mpi4py or gloo",
    )
