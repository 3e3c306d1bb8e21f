"""What hpccomm adds to MPI for small messages: its all_reduce against bare mpi4py and Gloo, alternating in one run.

``mpirun -np 2 --map-by core --bind-to core python -m bench.overhead`` (MPICH: ``-bind-to core``) prints the median over
repetitions of the slowest rank's time. Bind each rank to a core of its own and run nothing else meanwhile. Zeros are
reduced, and stay zeros: to fill a tensor anew in between would evict from the caches what is then timed.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import hpccomm

REPEATS = 3000


def main(sizes: list[int]) -> None:
    """Measure and print a table; sizes are in bytes."""
    torch.set_num_threads(1)
    with hpccomm.init("mpi4py", timeout_s=120) as world:
        from mpi4py import MPI

        gloo = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("gloo"))
        bare = MPI.COMM_WORLD.Dup()
        if world.topology.rank == 0:
            print("size_B  bare_us  mpi4py_us  over_us  async_us  gloo_us  gloo/mpi4py")
        for size in sizes:
            times = measured(size, bare, gloo)
            if world.topology.rank == 0:
                plain, ours, later, theirs = times
                over = ours - plain
                print(f"{size:6} {plain:8.2f} {ours:10.2f} {over:8.2f} {later:9.2f} {theirs:8.2f} {theirs / ours:8.1f}")


def measured(size: int, bare: Any, gloo: Any) -> list[float]:
    """Give the four medians in microseconds: bare mpi4py, ours, ours asynchronous with wait, Gloo."""
    from mpi4py import MPI

    tensor = torch.zeros(size // 4)
    view = np.zeros(size // 4, dtype=np.float32)

    def plain() -> None:
        bare.Allreduce(MPI.IN_PLACE, view)

    def ours() -> None:
        dist.all_reduce(tensor)

    def later() -> None:
        work = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        work.wait()

    def theirs() -> None:
        dist.all_reduce(tensor, group=gloo)

    return alternating(bare, [plain, ours]) + alternating(bare, [later, theirs])


def alternating(bare: Any, calls: Sequence[Callable[[], object]], *, repeats: int = REPEATS) -> list[float]:
    """Give the calls' medians in microseconds, one call of each in turn, after a tenth more to warm up."""
    from mpi4py import MPI

    warm_up = -(-repeats // 10)
    samples: list[list[float]] = [[] for _ in calls]
    for _ in range(warm_up + repeats):
        for call, taken in zip(calls, samples, strict=True):
            bare.Barrier()
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
    medians = []
    for taken in samples:
        slowest = np.empty(repeats)
        bare.Allreduce(np.array(taken[warm_up:]), slowest, op=MPI.MAX)
        medians.append(statistics.median(slowest) * 1e6)
    return medians


if __name__ == "__main__":
    main([int(text) for text in sys.argv[1:]] or [4, 1024, 65536])
