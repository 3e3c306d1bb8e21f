"""Who meets whom when: rounds of disjoint pairs, in which hosts meet host against host; pure.

In a round all ranks of a host meet ranks of one other host (or of their own), so every host's link carries the same
number of pairs in every round, and what differs between pairs is not the schedule's doing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpccomm.topology.grouping import Groups, grouped

Round = tuple[tuple[int, int], ...]

EVERY_PAIR_TO = 64
"""With more ranks than these, not every pair is measured."""

_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class _Turn:
    """A round that is not written out yet: inside hosts, or between hosts with partners so many places further."""

    number: int
    shift: int | None = None


def circle(players: int, turn: int) -> Round:
    """Give a turn of those in which everybody meets everybody once: the circle method of tournaments.

    >>> [circle(4, turn) for turn in range(turns(4))]
    [((0, 3), (1, 2)), ((1, 3), (0, 2)), ((2, 3), (0, 1))]
    """
    last = turns(players)
    meet = [(turn, last), *(((turn + step) % last, (turn - step) % last) for step in range(1, (last + 1) // 2))]
    return tuple((min(pair), max(pair)) for pair in meet if max(pair) < players)


def turns(players: int) -> int:
    """Give the number of turns; in each one of an odd number of players pauses."""
    return players - 1 + players % 2


def rounds(hosts: Sequence[int], most: int = EVERY_PAIR_TO) -> tuple[list[Round], int]:
    """Give the rounds to play in their order, and in how many every pair would meet.

    Up to `most` ranks every pair meets. With more ranks there are `most` rounds; those inside hosts are at most half of
    them, unless there are too few others. Whatever number of rounds is played, they are spread over all, and any two
    hosts meet before two meet again.

    Args:
        hosts: Host of each rank, numbered from 0.
        most: See above.
    """
    groups = grouped(hosts)
    places = max(map(len, groups))
    inside = [_Turn(number) for number in _spread(turns(places))] if places > 1 else []
    between = _spread(turns(len(groups))) if len(groups) > 1 else []
    across = [
        _Turn(number, (layer + place) % places) for layer in range(places) for place, number in enumerate(between)
    ]
    total = len(inside) + len(across)
    if len(hosts) > most:
        inside = inside[: max(most // 2, most - len(across))]
        across = across[: most - len(inside)]
    written = [pairs for turn in inside + across if (pairs := _written(turn, groups, places))]
    return written, total if len(hosts) > most else len(written)


def _written(turn: _Turn, groups: Groups, places: int) -> Round:
    if turn.shift is None:
        pairs = circle(places, turn.number)
        return tuple((ranks[one], ranks[other]) for ranks in groups for one, other in pairs if other < len(ranks))
    return tuple(
        (rank, groups[other][partner])
        for one, other in circle(len(groups), turn.number)
        for place, rank in enumerate(groups[one])
        if (partner := (place + turn.shift) % places) < len(groups[other])
    )


def _spread(count: int) -> list[int]:
    """Order numbers so that however many of the first ones are spread evenly over all."""
    return sorted(range(count), key=lambda number: number * _GOLDEN % 1)
