"""What MPI says of ranks that have died (user-level failure mitigation), asked of communicators that are given.

It imports no mpi4py: where there is a communicator, that is loaded already.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hpccomm.errors import RankLostError
from hpccomm.polling import pause

_OF_LOSS = ("ERR_PROC_FAILED", "ERR_PROC_FAILED_PENDING", "ERR_REVOKED")
_left_behind: list[threading.Thread] = []


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


def interruptible(communicator: Any, call: Callable[[], Any], what: str) -> Any:
    """Make a call that needs ranks of a communicator, and leave it behind where one of that has died.

    Open MPI 5.0 does not end MPI_Comm_create_group then, not even where the communicator is revoked. It is left in a
    thread of its own, so MPI must take calls from several.

    Args:
        communicator: What the call is made on; nothing on it ends well any more after a loss.
        call: The call.
        what: What it is made for, in messages.

    Returns:
        What the call gives.

    Raises:
        RankLostError: A rank has died.
    """
    given, raised = list[Any](), list[Exception]()

    def make() -> None:
        try:
            given.append(call())
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=make, name="hpccomm-interruptible", daemon=True)
    thread.start()
    begun = time.monotonic()
    try:
        while thread.is_alive() and not failed(communicator) and not communicator.Is_revoked():
            pause(time.monotonic() - begun)
    finally:
        if thread.is_alive():
            _left_behind.append(thread)
    if given:
        return given[0]
    if raised and not tells_of_loss(raised[0]):
        raise raised[0]
    raise RankLostError(what, found="a rank has died", remedy="call World.shrink on all ranks that are left")


def is_held() -> bool:
    """Tell whether a thread of this process is left behind in a call, so that MPI must not end under it."""
    return any(thread.is_alive() for thread in _left_behind)
