"""Binomial tree: what is sent doubles its reach, or its collection, in every round.

P ranks, S bytes, L = ceil(log2 P) rounds for each of reduce, broadcast, gather and scatter. Reduce: each rank but the
root sends S bytes once; broadcast: the root sends L·S. All-reduce is reduce to rank 0 and broadcast: 2L rounds of S
bytes each. Gather and scatter move each block once a level, (P-1)/P·S bytes through the root.

With ranks counted from the root on, the subtree of a rank is a run of consecutive ranks. In a buffer in rank order such
a run is one interval, or two where it passes the last rank; then it travels as two messages.

Source: the short-message algorithms of Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.schedule import Interval, Step, backwards, blocks


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Reduce to rank 0, then broadcast from there."""
    yield from reduce(rank, size, count, 0)
    yield from broadcast(rank, size, count, 0)


def reduce(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
    """Add the children's sums, nearest child first, and send the result to the parent."""
    for peer, is_parent, _ in _edges(rank, size, root):
        if is_parent:
            yield Step(dest=peer, send=(0, count))
        else:
            yield Step(source=peer, recv=(0, count), reduce=True)


def broadcast(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
    """Receive from the parent, then send to the children, farthest first."""
    return backwards(reduce(rank, size, count, root))


def gather(rank: int, size: int, counts: Sequence[int], root: int) -> Iterator[Step]:
    """Collect the children's blocks and send them on with the own one."""
    places = blocks(counts)
    for peer, is_parent, subtree in _edges(rank, size, root):
        for first, last in _runs(subtree, size, root):
            interval = places[first][0], places[last - 1][1]
            yield Step(dest=peer, send=interval) if is_parent else Step(source=peer, recv=interval)


def scatter(rank: int, size: int, counts: Sequence[int], root: int) -> Iterator[Step]:
    """Receive the blocks of the own subtree, then send each child its part."""
    return backwards(gather(rank, size, counts, root))


def _edges(rank: int, size: int, root: int) -> Iterator[tuple[int, bool, Interval]]:
    """List the children from the nearest on, then the parent: peer, whether it is the parent, the lower end's subtree.

    A subtree is a run of ranks counted from the root on.
    """
    place, reach = (rank - root) % size, 1
    while reach < size:
        if place & reach:
            yield (place - reach + root) % size, True, (place, min(place + reach, size))
            return
        child = place + reach
        if child < size:
            yield (child + root) % size, False, (child, min(child + reach, size))
        reach *= 2


def _runs(subtree: Interval, size: int, root: int) -> list[Interval]:
    """Turn a run of ranks counted from the root on into one or two runs of ranks."""
    first, last = subtree[0] + root, subtree[1] + root
    if first < size < last:
        return [(first, size), (0, last - size)]
    return [(first, last)] if last <= size else [(first - size, last - size)]
