"""What MPI says of ranks that have died (user-level failure mitigation), asked of communicators that are given.

It imports no mpi4py: where there is a communicator, that is loaded already.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any

_OF_LOSS = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")


def tells_of_loss(error: BaseException) -> bool:
    """Tell whether an error is MPI's word that a rank has died, or that a communicator was revoked for that."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is None or not isinstance(error, mpi.Exception):
        return False
    return error.Get_error_class() in {getattr(mpi, name) for name in _OF_LOSS}


def revoke(communicator: Any) -> None:
    """Have all operations of all ranks on a communicator fail from now on; one that is freed is left alone."""
    with suppress(Exception):
        communicator.Revoke()


def failed(communicator: Any) -> list[int]:
    """Give the ranks of a communicator that have died, as far as this process has heard."""
    mpi: Any = sys.modules["mpi4py.MPI"]
    with suppress(mpi.Exception):
        communicator.Iprobe()  # without some call MPI hears nothing
    with suppress(mpi.Exception):
        dead, whole = communicator.Get_failed(), communicator.Get_group()
        try:
            return [int(rank) for rank in mpi.Group.Translate_ranks(dead, None, whole)]
        finally:
            dead.Free()
            whole.Free()
    return []
