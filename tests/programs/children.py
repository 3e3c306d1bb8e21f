"""Children of a rank: each kind that calls init is refused; a data loader's workers leave the world intact.

With the argument `unguarded`, init stands at the top of the program, which a spawned child runs again.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

import hpccomm
from hpccomm.errors import WorldError


def call_init() -> None:
    """Start hpccomm in a child, and tell by the exit status how it was refused."""
    try:
        hpccomm.init()
    except WorldError:
        traceback.print_exc()
        os._exit(7)
    os._exit(0)


def fork(work: Callable[[], None]) -> int:
    """Run a function in a child made by os.fork, as any program would, and give its exit status."""
    child = os.fork()
    if child == 0:
        work()
        sys.exit(9)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def start(method: str, work: Callable[[], None]) -> int | None:
    """Run a function in a child of multiprocessing and give its exit status."""
    child = multiprocessing.get_context(method).Process(target=work)
    child.start()
    child.join()
    return child.exitcode


def exit_with_an_error() -> None:
    """End a child as argparse does."""
    sys.exit(5)


def total(world: hpccomm.World) -> float:
    """Sum the ranks over the world."""
    tensor = torch.full((3,), float(world.topology.rank))
    dist.all_reduce(tensor)
    return float(tensor[0])


def main(world: hpccomm.World) -> None:
    """Make one child of each kind and use the world afterwards."""
    expected = float(sum(range(world.topology.world_size)))
    assert fork(call_init) == 7
    assert start("fork", call_init) == 7
    assert start("spawn", call_init) == 7
    assert start("fork", exit_with_an_error) == 5
    assert total(world) == expected
    for epoch in range(2):
        loader = DataLoader(range(8), batch_size=2, num_workers=2, multiprocessing_context="fork")
        for batch in loader:
            assert total(world) == expected, (epoch, batch)
    print(f"rank {world.topology.rank}: intact\n", end="", flush=True)


if "unguarded" in sys.argv:
    with hpccomm.init() as made:
        print("child:", start("spawn", exit_with_an_error), flush=True)
elif __name__ == "__main__":
    with hpccomm.init() as made:
        main(made)
