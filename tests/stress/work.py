"""The rank program of the stress tests: start, then repeat one operation for a while and check every result.

python work.py OPERATION --backend EXPRESSION --timeout S --seconds S [--end RANK STATUS AFTER_S]
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

import hpccomm

LARGE = 64 * 2**20 // 4
BARRIERS = 20


def say(rank: int | str, words: str) -> None:
    """Write one line at once, so that the launcher never cuts it."""
    os.write(1, f"rank {rank} pid {os.getpid()} {words}\n".encode())


def summed(count: int, over: bool) -> bool:
    """Sum a one of each rank in every element but the last, where rank 0 says that the time is over; check all."""
    tensor = torch.ones(count)
    tensor[-1] = over
    dist.all_reduce(tensor)
    if not bool((tensor[:-1] == dist.get_world_size()).all()):
        raise AssertionError(f"wrong sum: {tensor[:8].tolist()}")
    return bool(tensor[-1] > 0)


def small(over: bool) -> bool:
    """Sum a few bytes."""
    return summed(4, over)


def large(over: bool) -> bool:
    """Sum 64 MiB."""
    return summed(LARGE, over)


def barrier(over: bool) -> bool:
    """Wait for all ranks many times, then agree on going on."""
    for _ in range(BARRIERS):
        dist.barrier()
    return small(over)


OPERATIONS: dict[str, Callable[[bool], bool]] = {"barrier": barrier, "small": small, "large": large}


def repeat(operation: Callable[[bool], bool], rank: int, seconds: float) -> None:
    """Repeat an operation until rank 0's time is over."""
    end = time.monotonic() + seconds
    while not operation(rank == 0 and time.monotonic() > end):
        pass


def main() -> None:
    """Start, say how long one operation takes, and repeat it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("--backend", required=True)
    parser.add_argument("--timeout", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--end", nargs=3, type=float, default=None)
    options = parser.parse_args()
    say(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or "0", "starts")
    with hpccomm.init(options.backend, timeout_s=options.timeout) as world:
        rank, operation = world.topology.rank, OPERATIONS[options.operation]
        operation(False)
        began = time.monotonic()
        operation(False)
        say(rank, f"begins, one takes {time.monotonic() - began:.3f} s")
        if options.end is not None and options.end[0] == rank:
            ending = threading.Timer(options.end[2], os._exit, [int(options.end[1])])
            ending.daemon = True
            ending.start()
        repeat(operation, rank, options.seconds)
        say(rank, "is right")


main()
