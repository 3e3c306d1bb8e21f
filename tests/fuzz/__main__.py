"""The command: options, the cases by placement of nodes, a report of each that fails, one line at the end."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fuzz.alarm import Alarm
from fuzz.case import Case
from fuzz.draw import EXPRESSIONS, draw
from fuzz.groups import Groups

if TYPE_CHECKING:
    from fuzz.play import Player


def _options() -> argparse.Namespace:
    made = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    made.add_argument("--cases", type=int, default=1000, help="how many, from 0 on")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--case", type=int, help="one case alone")
    made.add_argument("--expression", action="append", help="a backend to draw from, instead of all; may be repeated")
    made.add_argument("--most-wrong", type=int, default=20, help="wrong cases after which to end")
    made.add_argument("--deadline", type=float, default=30.0, help="seconds of an operation")
    made.add_argument("--show", action="store_true", help="print the cases instead of playing them")
    return made.parse_args()


def _again(options: argparse.Namespace, size: int, number: int) -> str:
    expressions = "".join(f" --expression '{expression}'" for expression in options.expression or ())
    return f"mpirun -np {size} python -m tests.fuzz --seed {options.seed}{expressions} --case {number}"


def main() -> int:
    """Play the cases."""
    options = _options()
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch renames its functions
    from fuzz.play import MPI, Player
    from mpi.worlds import PLACEMENTS

    rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    nodes = ["A" * size, *PLACEMENTS[size]]
    numbers = range(options.cases) if options.case is None else [options.case]
    expressions = options.expression or EXPRESSIONS
    cases = [draw(options.seed, number, nodes, expressions) for number in numbers]
    if options.show:
        print("".join(f"{case.number} {case}\n" for case in cases if rank == 0), end="")
        return 0
    alarm = Alarm(rank, slow_s=options.deadline / 2, end_s=3 * options.deadline)
    player = Player(alarm, lambda number: _again(options, size, number))
    start = time.monotonic()
    played, wrong = _play(player, cases, options)
    if rank == 0:
        slowest_s, slowest = player.slowest
        print(
            f"{played} cases, {wrong} wrong, {len(expressions)} expressions, {size} ranks, seed {options.seed}, "
            f"{time.monotonic() - start:.1f} s; the slowest was case {slowest} with {slowest_s:.1f} s",
            flush=True,
        )
    return 1 if wrong else 0


def _play(player: Player, cases: Sequence[Case], options: argparse.Namespace) -> tuple[int, int]:
    """Play the cases, those of each placement of nodes in a world of its own, and count them and the wrong ones."""
    from mpi.worlds import world

    played, wrong = 0, 0
    by_nodes: dict[str, list[Case]] = {}
    for case in cases:
        by_nodes.setdefault(case.nodes, []).append(case)
    for nodes, here in by_nodes.items():
        with world(nodes, "mpi4py"):
            groups = Groups(options.deadline)
            for case in here:
                played += 1
                if found := player.play(case, groups):
                    wrong += 1
                    if player.rank == 0:
                        _report(case, found, _again(options, player.size, case.number))
                if wrong >= options.most_wrong:
                    return played, wrong
    return played, wrong


def _report(case: Case, found: list[str], again: str) -> None:
    print(f"wrong: case {case.number}: {case}")
    print("\n".join(f"    {line}" for text in found for line in text.splitlines()))
    print(f"    again: {again}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
