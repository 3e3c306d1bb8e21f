"""How `mpi4py` holds its deadline: in the arrival at an operation, or throughout.

The library's own collectives are the fastest, but a rank that stops inside one holds the others where nothing ends the
wait but the end of the process. Schedules over its send and recv are polled from beginning to end.
"""

from __future__ import annotations

import os
from dataclasses import replace

from hpccomm.algorithms import ALGORITHMS
from hpccomm.backends.base import Backend, check_deadline
from hpccomm.backends.context import Context
from hpccomm.backends.cuda_aware import Verdict, agreed
from hpccomm.backends.device import device_of
from hpccomm.backends.mpi import MpiBackend
from hpccomm.backends.names import within
from hpccomm.backends.scheduled import ScheduledBackend
from hpccomm.expression import Expression, parse

_HOLDERS = ("mpi4py", "auto", "shm")  # that take deadline=
ALGORITHM = "halving_doubling"  # the fewest steps of those that move the fewest bytes


def build_mpi(context: Context, *, deadline: str = "arrival") -> Backend:
    """Build `mpi4py`.

    Args:
        context: The group.
        deadline: ``arrival`` for the library's collectives, ``strict`` for polled schedules alone.
    """
    check_deadline("mpi4py", deadline)
    if deadline == "strict":
        return ScheduledBackend(context, parse("mpi4py"), ALGORITHM)
    device = device_of(context.device) if context.communicator is not None else None
    if device is None:
        return MpiBackend(context)
    from mpi4py import MPI

    if MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        found = Verdict("no", "MPI takes no calls from several threads, and non-blocking ones are not asked of it")
    else:
        found = agreed(context, MPI.Get_library_version().splitlines()[0], os.environ)
    backend = MpiBackend(context, device if found.answer == "yes" else None)
    backend.notes = [f"MPI takes a GPU's memory itself: {found}"]
    return backend


def polled(expression: Expression) -> Expression:
    """Have MPI's collectives go by polled schedules in an expression, so that a stall inside them is seen."""
    if expression.name in ALGORITHMS:
        return expression
    if expression.name in _HOLDERS and "deadline" not in expression.keywords:
        return replace(expression, options=(*expression.options, ("deadline", "strict")))
    inner = within(expression)
    return replace(expression, arguments=(*map(polled, inner), *expression.arguments[len(inner) :]))
