"""What `failover` costs where nothing fails: all_reduce over it, over what it stands on, and by bare mpi4py, in turn.

``mpirun -np 2 --map-by core --bind-to core python -m bench.failover_cost`` (MPICH: ``-bind-to core``) prints a table in
Markdown: medians over repetitions of the slowest rank's microseconds, and their ratios to bare mpi4py's. Bind each rank
to a core of its own and run nothing else meanwhile; sizes may be given: ``… bench.failover_cost 4 64KiB 1MiB``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import hpccomm
from bench.overhead import alternating
from hpccomm.units import format_bytes, parse_bytes

CASES = (
    "mpi4py",
    "mpi4py(deadline=strict)",  # what failover makes of mpi4py
    "failover(mpi4py, gloo, verify=false)",
    "failover(mpi4py, gloo)",
)
SIZES = ("4", "256", "4KiB", "64KiB", "256KiB", "1MiB", "4MiB", "16MiB", "64MiB")
MOST, LEAST, BYTES = 1000, 9, 2**28  # repetitions, and what they move in between


def main(sizes: Sequence[int]) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    with hpccomm.init("mpi4py", timeout_s=300) as world:
        from mpi4py import MPI

        groups = [dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(case)) for case in CASES]
        bare, is_first = MPI.COMM_WORLD.Dup(), world.topology.rank == 0
        if is_first:
            print(f"{world.topology}\n\n| size | bare mpi4py | {' | '.join(CASES)} |\n|{'---|' * (len(CASES) + 2)}")
        for size in sizes:
            times = measured(size, bare, groups)
            if is_first:
                cells = [f"{times[0]:.1f}", *(f"{one:.1f} ({one / times[0]:.2f}x)" for one in times[1:])]
                print(f"| {format_bytes(size)} | {' | '.join(cells)} |", flush=True)


def measured(size: int, bare: Any, groups: Sequence[dist.ProcessGroup]) -> list[float]:
    """Give the medians in microseconds: of bare mpi4py, and of each group."""
    from mpi4py import MPI

    tensor, view = torch.zeros(size // 4), np.zeros(size // 4, dtype=np.float32)

    def plain() -> None:
        bare.Allreduce(MPI.IN_PLACE, view)

    def over(group: dist.ProcessGroup) -> Callable[[], object]:
        return lambda: dist.all_reduce(tensor, group=group)

    calls = [plain, *map(over, groups)]
    repeats = min(MOST, max(LEAST, BYTES // size))
    return alternating(bare, calls, repeats=repeats)


if __name__ == "__main__":
    main([parse_bytes(text) for text in sys.argv[1:] or SIZES])
