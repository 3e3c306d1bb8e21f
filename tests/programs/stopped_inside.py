"""Rank 1 is stopped when MPI is about to make channels, and rank 0 waits inside MPI; arguments: deadline, moment.

Moments: ``start`` of a world, a ``group`` of one's own, ``shrink`` after rank 2 was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from datetime import timedelta
from typing import Any

import torch.distributed as dist

import hpccomm
from hpccomm.backends.context import Context
from hpccomm.bootstrap.assembly import Assembly

deadline_s, moment = float(sys.argv[1]), sys.argv[2]
on_lost_rank = "shrink" if moment == "shrink" else "abort"
# Loads all modules, in which ranks may be seconds apart
hpccomm.init("mpi4py", timeout_s=100, on_lost_rank=on_lost_rank).close()


def stops(call: Any) -> Any:
    """Give what stops rank 1 and then makes a call."""

    def stopped(*arguments: Any) -> Any:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        return call(*arguments)

    return stopped


class Stops:
    """A communicator whose shrinking stops rank 1."""

    def __init__(self, communicator: Any) -> None:
        self._communicator = communicator

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._communicator, name)
        return stops(found) if name == "Shrink" else found


def shrink(world: hpccomm.World) -> None:
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    assembly = world._assembly
    assert isinstance(assembly, Assembly)
    assert not assembly.agree(True)
    assembly._communicator = Stops(assembly._communicator)
    world.shrink()


rank = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"])
if moment == "start":
    Context._subcommunicator = stops(Context._subcommunicator)  # type: ignore[method-assign]
with hpccomm.init("mpi4py", timeout_s=deadline_s, on_lost_rank=on_lost_rank) as world:
    if moment == "shrink":
        shrink(world)
    Context._subcommunicator = stops(Context._subcommunicator)  # type: ignore[method-assign]
    dist.new_group(backend="hpccomm", timeout=timedelta(seconds=deadline_s))
print("went on", flush=True)
