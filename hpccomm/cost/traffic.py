"""Who sends to whom at the same time, and what that asks of the nodes.

Where ranks fill one node after the other and all nodes are of one size, shifts by every distance are counted and not
listed: 100,000 ranks have ten milliards of such messages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

Nodes = tuple[int, ...]
"""Node of each rank."""

Pairs = Iterable[tuple[int, int]]
"""(source, dest) of each message."""


@dataclass(frozen=True, slots=True)
class Load:
    """What messages that travel at once ask of the nodes.

    Attributes:
        leaving: How many leave the node that sends most of them to others.
        inside: Whether any stays in its node.
    """

    leaving: int
    inside: bool


Traffic = Callable[[Nodes], "Counter[Load]"]
"""Gives the loads of one or several rounds, each with the number of rounds that have it."""


def at_once(pairs: Callable[[], Pairs]) -> Traffic:
    """All these messages in one round; what they ask of the nodes asked for last is kept."""
    return lru_cache(maxsize=1)(lambda nodes: Counter([_load(pairs(), nodes)]))


def one_by_one(pairs: Pairs) -> Traffic:
    """A round for each of these messages."""
    found = list(pairs)

    def loads(nodes: Nodes) -> Counter[Load]:
        leaving = sum(nodes[source] != nodes[dest] for source, dest in found)
        return Counter({Load(1, inside=False): leaving, Load(0, inside=True): len(found) - leaving})

    return loads


def to_next(nodes: Nodes) -> Counter[Load]:
    """One round in which every rank sends to the next one."""
    return Counter([_shifted(nodes, 1)])


def ahead(distance: int) -> Traffic:
    """One round in which every rank sends to the one so far ahead, of more ranks than that."""
    return lambda nodes: Counter([_shifted(nodes, distance)])


def to_partners(reach: int, members: Callable[[], Sequence[int]]) -> Traffic:
    """One round in which members exchange with those whose place differs by `reach`, a power of two."""

    def pairs() -> Pairs:
        ranks = members()
        return ((rank, ranks[place ^ reach]) for place, rank in enumerate(ranks))

    listed = at_once(pairs)

    def loads(nodes: Nodes) -> Counter[Load]:
        per_node = ranks_per_node(nodes)
        if per_node is None or len(nodes) & (len(nodes) - 1):
            return listed(nodes)
        is_inside = reach < per_node  # which is a power of two, too
        return Counter([Load(0 if is_inside else per_node, is_inside)])

    return loads


def to_all(nodes: Nodes) -> Counter[Load]:
    """A round for every distance in which every rank sends to the one so far ahead."""
    size, per_node = len(nodes), ranks_per_node(nodes)
    if per_node is None:
        return Counter(_shifted(nodes, distance) for distance in range(1, size))
    near = list(range(1, min(per_node, size)))
    near += [size - distance for distance in near if size - distance > near[-1]]
    found = Counter(_shifted(nodes, distance) for distance in near)
    far = size - 1 - len(near)
    return found + Counter({Load(per_node, inside=False): far})


@lru_cache(maxsize=64)
def ranks_per_node(nodes: Nodes) -> int | None:
    """Give the size of the nodes where all are of one size and are filled one after the other, else None."""
    share, rest = divmod(len(nodes), len(set(nodes)))
    is_by_slot = not rest and all(len({*nodes[first : first + share]}) == 1 for first in range(0, len(nodes), share))
    return share if is_by_slot else None


def _shifted(nodes: Nodes, distance: int) -> Load:
    size, per_node = len(nodes), ranks_per_node(nodes)
    if per_node is None:
        return _load(((rank, (rank + distance) % size) for rank in range(size)), nodes)
    if per_node == size:
        return Load(0, inside=True)
    nearest = min(distance, size - distance)
    return Load(min(nearest, per_node), inside=nearest < per_node)


def _load(pairs: Pairs, nodes: Nodes) -> Load:
    ends = [(nodes[source], nodes[dest]) for source, dest in pairs]
    leaving = Counter(source for source, dest in ends if source != dest)
    return Load(max(leaving.values(), default=0), inside=leaving.total() < len(ends))
