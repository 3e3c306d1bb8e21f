"""Values of every rank as curves; of very many ranks, of blocks of them."""

from __future__ import annotations

from collections.abc import Sequence

from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.shapes import Across
from hpccomm.topology.grouping import ranges

MOST_POINTS = 512
"""Of a curve; with more ranks a point is the largest value of a block of ranks."""


def block(ranks: int) -> int:
    """Give how many ranks a point is of."""
    return -(-ranks // MOST_POINTS)


def across(run: Run) -> Across:
    """Give the axis of ranks."""
    ranks = len(run.node_of_rank)
    size = block(ranks)
    if size == 1:
        return Across("rank", "rank", tuple(map(run.rank, range(ranks))), joined=False)
    blocks = [range(first, min(first + size, ranks)) for first in range(0, ranks, size)]
    names = tuple(f"the largest of ranks {ranges(one)}" for one in blocks)
    return Across(f"rank (largest of every {size})", "rank", names, joined=False)


def points(values: Sequence[float]) -> tuple[tuple[int, float], ...]:
    """Give the points of values of all ranks."""
    size = block(len(values))
    return tuple((first, max(values[first : first + size])) for first in range(0, len(values), size))
