"""The last rank is late for the others, in the way that the first argument names; the second is their deadline.

never: it does not come. stopped: it is stopped between MPI_Init and init and again in the world, and goes on each time.
stopped for good: it is stopped in the world. suspended: all are stopped beyond the deadline while the others wait
for it. after the deadline: it comes when the others have given up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from mpi4py import MPI

from hpccomm import init
from hpccomm.errors import DeadlineError

COMM = MPI.COMM_WORLD
IS_LAST = COMM.rank == COMM.size - 1
STOP_S = 2
WAY, DEADLINE_S = sys.argv[1], float(sys.argv[2])


def stop(then_go_on: bool = True) -> None:
    """Stop this process until a child of it wakes it."""
    if then_go_on:
        subprocess.Popen(["sh", "-c", f"sleep {STOP_S}; kill -CONT {os.getpid()}"], stdout=subprocess.DEVNULL)
    os.kill(os.getpid(), signal.SIGSTOP)


def suspend(pids: list[int]) -> None:
    """Stop all ranks in a second for longer than the deadline, and come then."""
    to = " ".join(map(str, pids))
    subprocess.Popen(["sh", "-c", f"sleep 1; kill -STOP {to}; sleep {DEADLINE_S + 1}; kill -CONT {to}"])
    time.sleep(1.5)


def say(text: str) -> None:
    print(f"{text}\n", end="", flush=True)


def say_error_and_end() -> None:
    try:
        init(timeout_s=DEADLINE_S)
    except DeadlineError as error:
        say(f"rank {COMM.rank}: {error.summary}")
    if not IS_LAST:
        time.sleep(60)
    time.sleep(1)
    COMM.Abort(7)


def main() -> None:
    """Come, if at all, and compute a sum."""
    COMM.Barrier()  # ranks load their modules seconds apart on a busy machine
    if IS_LAST and WAY == "never":
        time.sleep(300)
    if IS_LAST and WAY == "after the deadline":
        time.sleep(DEADLINE_S + 1)
    if IS_LAST and WAY == "stopped":
        stop()
    if WAY == "suspended":
        pids = COMM.allgather(os.getpid())
        if IS_LAST:
            suspend(pids)
    say(f"begins at {time.monotonic()}")
    if WAY == "after the deadline":
        say_error_and_end()
    with init("mpi4py", timeout_s=DEADLINE_S) as world:
        assert not COMM.Iprobe(), "a message is left on COMM_WORLD"
        if IS_LAST and WAY in ("stopped", "stopped for good"):
            stop(then_go_on=WAY == "stopped")
        assert world.exchange.all_gather(COMM.rank) == list(range(COMM.size))
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        say(f"sum {tensor[0]:g}")


main()
