"""Recursive halving and doubling (Rabenseifner's all-reduce): halve what is exchanged in every round, then double it.

P ranks, S bytes, P = p + x with p a power of two. Reduce-scatter by halving and all-gather by doubling: log2(p) rounds
of S/2, S/4, … bytes, (p-1)/p·S bytes sent by each rank. All-reduce is both: 2·log2(p) rounds, 2(p-1)/p·S bytes. Where
x > 0, `folding` adds two rounds and up to S bytes each way for pairs of ranks.

Source: Rabenseifner, "Optimization of collective reduction operations" (2004); Thakur, Rabenseifner and Gropp (2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.algorithms.folding import folded, merged
from hpccomm.schedule import Step, backwards, blocks, shares


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Halve and double equal chunks."""

    def core(member: int, power: int) -> Iterator[Step]:
        steps = list(_halving(member, shares(power, count)))
        yield from steps
        yield from backwards(steps)

    return folded(rank, size, (0, count), lambda _: (0, count), core)


def reduce_scatter(rank: int, size: int, counts: Sequence[int]) -> Iterator[Step]:
    """Halve down to the own block, or to those of a pair."""
    places = blocks(counts)
    whole = (0, places[-1][1])
    return folded(rank, size, whole, places.__getitem__, lambda member, _: _halving(member, merged(counts)))


def all_gather(rank: int, size: int, counts: Sequence[int]) -> Iterator[Step]:
    """Double what is known until it is all."""
    return backwards(reduce_scatter(rank, size, counts))


def _halving(rank: int, counts: Sequence[int]) -> Iterator[Step]:
    """Send the farther half of the ranks' blocks to a rank in that half, and add its copy of the nearer one."""
    places = blocks(counts)
    first, half = 0, len(counts) // 2
    while half:
        lower = places[first][0], places[first + half - 1][1]
        upper = places[first + half][0], places[first + 2 * half - 1][1]
        in_upper = bool(rank & half)
        give, keep = (lower, upper) if in_upper else (upper, lower)
        yield Step(rank ^ half, give, rank ^ half, keep, reduce=True)
        first += half * in_upper
        half //= 2
