"""Proof of an algorithm: all its schedules verified for a number of ranks, over counts, roots and uneven blocks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.algorithms.algorithm import Algorithm
from hpccomm.schedule import Contract, contracts, shares, verify

COUNTS = (0, 1, 7, 64, 129)
"""Elements to try: none, fewer than ranks, more, divisible by powers of two, odd."""


def prove(algorithm: Algorithm, size: int, counts: Sequence[int] = COUNTS) -> int:
    """Verify all of an algorithm's schedules among so many ranks.

    Args:
        algorithm: What to prove.
        size: Number of ranks.
        counts: Elements to try.

    Returns:
        The number of cases that were verified.

    Raises:
        ScheduleError: One of them has a fault.
    """
    proven = 0
    for collective in algorithm.collectives:
        separate_input = collective in algorithm.separate_input
        for contract in _cases(collective, size, counts):
            verify(getattr(algorithm, collective), contract, separate_input=separate_input)
            proven += 1
    return proven


def _cases(collective: str, size: int, counts: Sequence[int]) -> Iterator[Contract]:
    """List contracts of a collective: of equal and of uneven blocks, of the first, a middle and the last root."""
    make = getattr(contracts, collective)
    roots = sorted({0, size // 2, size - 1})
    uneven = [rank * 3 % 5 for rank in range(size)]
    divisions = [*(shares(size, count) for count in counts), uneven]
    if collective == "all_reduce":
        yield from (make(size, count) for count in counts)
    elif collective in ("broadcast", "reduce"):
        yield from (make(size, count, root) for count in counts for root in roots)
    elif collective in ("reduce_scatter", "all_gather"):
        yield from map(make, divisions)
    elif collective in ("gather", "scatter"):
        yield from (make(division, root) for division in divisions for root in roots)
    elif collective == "all_to_all":
        yield from (make([division] * size) for division in divisions)
        yield make([[(3 * source + 5 * dest) % 4 for dest in range(size)] for source in range(size)])
    else:
        yield make(size)
