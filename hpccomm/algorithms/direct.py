"""Direct, one shot: every rank sends all it has to every rank, and each adds up everything by itself.

P ranks, S bytes: one round in which each rank sends (P-1)·S bytes and adds (P-1)·S. The fewest possible steps, so the
fastest for small buffers. Every rank adds in rank order, its own input included, so that all get the same bits; hence
the input must outlive the output (separate input). The two-shot form, for larger buffers, is `pairwise`.

Source: the one-shot all-reduce that inference libraries use among fully connected GPUs; cost by Hockney's model.
"""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.schedule import Step


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Post all sends, nearest neighbour first, then add in rank order."""
    whole = (0, count)
    for distance in range(1, size):
        yield Step(dest=(rank + distance) % size, send=whole)
    for source in range(size):
        if source == rank:
            yield Step(rank, whole, rank, whole, reduce=source > 0)
        else:
            yield Step(source=source, recv=whole, reduce=source > 0)
