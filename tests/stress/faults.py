"""Put a fault of each kind at each of the first operations of each rank: failover is right on all of them.

mpirun -np 4 python tests/stress/faults.py --operations 20; with --seed a random tenth of the cases, and so on.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch.distributed as dist

import hpccomm
from exact import COLLECTIVES, RANK, SIZE
from hpccomm.errors import HpccommError

KINDS = [
    *(f"{kind}(at={moment})" for kind in ("raise", "hang", "late") for moment in ("before", "inside", "after")),
    "wrong",
    "raise(at=construction)",
]
FIRST = ("mpi4py", "hierarchical(mpi4py, gloo, by=2)", "ring(gloo)")
SECOND = ("gloo", "mpi4py")
DEADLINE_S = 3.0
LATE_S = 1.5  # longer than the attempt that it is late in


@dataclass(frozen=True)
class Case:
    """A fault of one backend, and another that is to go on."""

    first: str
    kind: str
    rank: int
    call: int
    second: str

    @property
    def backend(self) -> str:
        """As an expression."""
        fault = f"faulty({self.first}, {self.kind}, rank={self.rank}, call={self.call}, seconds={LATE_S})"
        return f"failover({fault}, {self.second})"


def cases(operations: int) -> Iterator[Case]:
    """Give all of them; carriers take turns."""
    backends = itertools.cycle(itertools.product(FIRST, SECOND))
    for kind, rank, call in itertools.product(KINDS, range(SIZE), range(1, operations + 1)):
        if "construction" not in kind or call == 1:
            first, second = next(backends)
            yield Case(first, kind, rank, call, second)


def play(world: hpccomm.World, case: Case, operations: int) -> str:
    """Call collectives past the fault, and tell what came of it: right on all ranks, an error on all, or wrong."""
    group, said = None, "right"
    try:
        options = hpccomm.Options(case.backend)
        group = dist.new_group(backend="hpccomm", pg_options=options, timeout=timedelta(seconds=DEADLINE_S))
        for number in range(operations + 1):
            COLLECTIVES[number % len(COLLECTIVES)](group)
    except HpccommError as error:
        said = f"error: {error.summary}"
    except AssertionError as error:
        said = f"WRONG on rank {RANK}: {error}"
    everyone = world.exchange.all_gather(said)
    if group is not None:
        dist.destroy_process_group(group)
    if any("WRONG" in one for one in everyone) or len({one.partition(":")[0] for one in everyone}) > 1:
        return f"WRONG: {everyone}"
    return everyone[0]  # the text of an error at a deadline differs: one rank gives up, the others hear of it


def main() -> int:
    """Play the cases, and print what came of them."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--operations", type=int, default=20, help="the first ones, at each of which a fault strikes")
    parser.add_argument("--share", type=float, default=1.0, help="of the cases, drawn at random")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    drawn = random.Random(options.seed)
    chosen = [case for case in cases(options.operations) if drawn.random() < options.share]
    counts: Counter[str] = Counter()
    began = time.monotonic()
    with hpccomm.init("mpi4py", timeout_s=60) as world:
        for case in chosen:
            found = play(world, case, options.operations)
            counts[found.partition(":")[0]] += 1
            if found != "right" and RANK == 0:
                print(f"{case.backend}: {found}", flush=True)
    if RANK == 0:
        told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items()))
        print(f"{len(chosen)} faults among {SIZE} ranks in {time.monotonic() - began:.0f} s: {told}", flush=True)
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
