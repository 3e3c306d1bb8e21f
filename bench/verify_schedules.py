"""Verify every algorithm over numbers of ranks and nodes, and print how long each took, in CPU time.

python bench/verify_schedules.py
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from hpccomm.algorithms import ALGORITHMS, Algorithm, find
from hpccomm.algorithms.hierarchical import hierarchical
from hpccomm.algorithms.proof import prove

SIZES = {"1-17": range(1, 18), "31": (31,), "32": (32,), "33": (33,), "64": (64,)}
NODES = {
    "3+1": (0, 0, 0, 1),
    "1+2+1": (0, 1, 1, 2),
    "mixed 3+2+1": (0, 1, 0, 1, 2, 0),
    "5+3+7": (0,) * 5 + (1,) * 3 + (2,) * 7,
    "8 x 8": tuple(rank // 8 for rank in range(64)),
}
SHAPES = (("ring", "ring"), ("pairwise", "halving_doubling"), ("tree", "recursive_doubling"))


def timed(algorithm: Algorithm, sizes: Iterable[int]) -> tuple[int, float]:
    """Prove an algorithm for these numbers of ranks; give the number of cases and the CPU milliseconds."""
    started = time.process_time()
    return sum(prove(algorithm, size) for size in sizes), 1e3 * (time.process_time() - started)


def rows_of(title: str, headings: Iterable[str], rows: dict[str, list[tuple[int, float]]]) -> Table:
    """Lay out one row an algorithm: a time a column, their sum, and the cases."""
    table = Table("algorithm", title=title)
    for heading in (*headings, "total", "cases"):
        table.add_column(heading, justify="right")
    for name, results in rows.items():
        times = [spent for _, spent in results]
        cells = [f"{spent:.0f}" for spent in (*times, sum(times))]
        table.add_row(name, *cells, str(sum(cases for cases, _ in results)))
    return table


def main() -> None:
    """Print both tables and the total."""
    flat = {algorithm.name: [timed(algorithm, sizes) for sizes in SIZES.values()] for algorithm in ALGORITHMS.values()}
    nested: dict[str, list[tuple[int, float]]] = {}
    for intra, inter in SHAPES:
        composed = [hierarchical(nodes, intra=find(intra), inter=find(inter)) for nodes in NODES.values()]
        results = [timed(algorithm, [len(nodes)]) for algorithm, nodes in zip(composed, NODES.values(), strict=True)]
        nested[composed[0].name] = results
    console = Console(width=110)
    console.print(rows_of("ms to verify, by number of ranks", SIZES, flat))
    console.print(rows_of("ms to verify, by ranks on each node", NODES, nested))
    results = [result for row in (*flat.values(), *nested.values()) for result in row]
    seconds = sum(spent for _, spent in results) / 1e3
    console.print(f"{sum(cases for cases, _ in results)} schedules in {seconds:.1f} s of CPU time, all proven")


if __name__ == "__main__":
    main()
