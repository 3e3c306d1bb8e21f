"""Any number of ranks for algorithms that need a power of two: the ranks that are too many lend theirs to neighbours.

Of P = p + x ranks (p a power of two) the first 2x form pairs; the odd one of a pair sends its input to the even one
before and gets its result after. That costs two more rounds, and the pairs' S bytes each way.

Source: Rabenseifner, "Optimization of collective reduction operations" (2004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from hpccomm.schedule import Interval, Step, embed

Core = Callable[[int, int], Iterator[Step]]
"""(rank, size) with size a power of two."""


def members(size: int) -> list[int]:
    """Give the ranks that take part: as many as the largest power of two, the even ones of the pairs first."""
    extra = size - largest_power(size)
    return [*range(0, 2 * extra, 2), *range(2 * extra, size)]


def largest_power(size: int) -> int:
    """Give the largest power of two that is not above `size`."""
    return 1 << (size.bit_length() - 1)


def merged(counts: Sequence[int]) -> list[int]:
    """Give the lengths of the members' blocks, where a pair's two blocks count as one."""
    ranks = [*members(len(counts)), len(counts)]
    return [sum(counts[rank:behind]) for rank, behind in pairwise(ranks)]


def folded(rank: int, size: int, whole: Interval, returned: Callable[[int], Interval], core: Core) -> Iterator[Step]:
    """Run a power-of-two schedule that reduces among the members, and serve the other ranks through them.

    Args:
        rank: Who asks.
        size: Number of ranks.
        whole: What an odd rank of a pair hands in to be added.
        returned: What it gets back, by its rank.
        core: The schedule among the members.
    """
    taking_part = members(size)
    pairs = 2 * (size - len(taking_part))
    if rank < pairs and rank % 2:
        yield Step(dest=rank - 1, send=whole)
        yield Step(source=rank - 1, recv=returned(rank))
        return
    if rank < pairs:
        yield Step(source=rank + 1, recv=whole, reduce=True)
    yield from embed(core(taking_part.index(rank), len(taking_part)), taking_part)
    if rank < pairs:
        yield Step(dest=rank + 1, send=returned(rank + 1))
