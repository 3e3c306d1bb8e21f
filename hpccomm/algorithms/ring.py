"""Ring: every rank sends to its right neighbour only.

P ranks, S bytes. Reduce-scatter and all-gather: P-1 steps, (P-1)/P·S bytes sent by each rank. All-reduce is both:
2(P-1) steps, 2(P-1)/P·S bytes, which is the least possible; the many steps make it slow for small buffers.

Source: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.schedule import Step, blocks, shares


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Reduce-scatter equal chunks, then gather them."""
    counts = shares(size, count)
    yield from reduce_scatter(rank, size, counts)
    yield from all_gather(rank, size, counts)


def reduce_scatter(rank: int, size: int, counts: Sequence[int]) -> Iterator[Step]:
    """Pass blocks on, adding the own part; a block comes last to the rank that owns it."""
    places, right, left = blocks(counts), (rank + 1) % size, (rank - 1) % size
    for step in range(1, size):
        yield Step(right, places[(rank - step) % size], left, places[(rank - step - 1) % size], reduce=True)


def all_gather(rank: int, size: int, counts: Sequence[int]) -> Iterator[Step]:
    """Pass blocks on, the own one first."""
    places, right, left = blocks(counts), (rank + 1) % size, (rank - 1) % size
    for step in range(size - 1):
        yield Step(right, places[(rank - step) % size], left, places[(rank - step - 1) % size])
