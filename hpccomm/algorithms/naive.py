"""Naive: the root talks to one rank after the other.

P ranks, S bytes. All-reduce: the root receives and adds P-1 buffers, then sends the sum P-1 times; 2(P-1) messages of
S bytes one after the other at the root, (P-1)·S bytes sent by the root and S by every other rank. Reduce and
broadcast are one half of it, gather and scatter the same with blocks. The baseline that everything else must beat.

Source: what a program does that knows send and receive only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.schedule import Interval, Step, backwards, blocks


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Reduce to rank 0, which sends the sum to all."""
    yield from reduce(rank, size, count, 0)
    yield from broadcast(rank, size, count, 0)


def reduce(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
    """Let the root add one buffer after the other."""
    return _collect(rank, root, [(0, count)] * size, reduce=True)


def broadcast(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
    """Let the root send to one rank after the other."""
    return backwards(reduce(rank, size, count, root))


def gather(rank: int, size: int, counts: Sequence[int], root: int) -> Iterator[Step]:
    """Let the root receive one block after the other."""
    return _collect(rank, root, blocks(counts), reduce=False)


def scatter(rank: int, size: int, counts: Sequence[int], root: int) -> Iterator[Step]:
    """Let the root send one block after the other."""
    return backwards(gather(rank, size, counts, root))


def _collect(rank: int, root: int, places: list[Interval], *, reduce: bool) -> Iterator[Step]:
    if rank != root:
        yield Step(dest=root, send=places[rank])
        return
    for source, place in enumerate(places):
        if source != root:
            yield Step(source=source, recv=place, reduce=reduce)
