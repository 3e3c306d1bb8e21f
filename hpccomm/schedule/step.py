"""The step, how a buffer is cut into chunks and blocks, and schedules made from schedules. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

Interval = tuple[int, int]
"""Elements from the first number up to, not including, the second."""


@dataclass(frozen=True, slots=True)
class Step:
    """At most one message out and one in.

    Attributes:
        dest: Rank that gets `send`; -1 for none.
        send: What is sent.
        source: Rank from which `recv` comes; -1 for none.
        recv: Where it goes.
        reduce: Whether it is added to what is there instead of stored.
    """

    dest: int = -1
    send: Interval = (0, 0)
    source: int = -1
    recv: Interval = (0, 0)
    reduce: bool = False


def chunk(index: int, size: int, count: int) -> Interval:
    """Give chunk `index` of `count` elements cut into `size` chunks, of which the first few are longer by one.

    >>> [chunk(index, 3, 7) for index in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    share, rest = divmod(count, size)
    start = index * share + min(index, rest)
    return start, start + share + (index < rest)


def chunks(size: int, count: int) -> list[Interval]:
    """Give all chunks of `count` elements cut into `size`."""
    return [chunk(index, size, count) for index in range(size)]


def shares(size: int, count: int) -> list[int]:
    """Give the lengths of the chunks of `count` elements cut into `size`."""
    share, rest = divmod(count, size)
    return [share + (index < rest) for index in range(size)]


def blocks(counts: Iterable[int]) -> list[Interval]:
    """Give the intervals of blocks of these lengths that lie one after the other.

    >>> blocks([3, 0, 2])
    [(0, 3), (3, 3), (3, 5)]
    """
    return list(pairwise(accumulate(counts, initial=0)))


def embed(steps: Iterable[Step], ranks: Sequence[int], offset: int = 0) -> Iterator[Step]:
    """Place a sub-group's schedule into a group.

    Args:
        steps: The schedule of one of the sub-group's ranks.
        ranks: The group's rank of each rank of the sub-group.
        offset: Where in the group's buffer the sub-group's begins, in elements.
    """
    for step in steps:
        yield Step(
            dest=ranks[step.dest] if step.dest >= 0 else -1,
            send=(step.send[0] + offset, step.send[1] + offset),
            source=ranks[step.source] if step.source >= 0 else -1,
            recv=(step.recv[0] + offset, step.recv[1] + offset),
            reduce=step.reduce,
        )


def backwards(steps: Iterable[Step]) -> Iterator[Step]:
    """Send every message of a schedule back to where it came from, the last one first, adding nothing.

    This turns gather into scatter, reduce into broadcast, and reduce-scatter into all-gather.
    """
    for step in reversed(list(steps)):
        yield Step(dest=step.source, send=step.recv, source=step.dest, recv=step.send)
