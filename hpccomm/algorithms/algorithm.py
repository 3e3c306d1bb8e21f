"""What an algorithm offers: one schedule function for each collective that it serves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpccomm.schedule import Step

Plain = Callable[[int, int], Iterator[Step]]
"""(rank, size)"""
Counted = Callable[[int, int, int], Iterator[Step]]
"""(rank, size, count): elements of every rank's buffer."""
Rooted = Callable[[int, int, int, int], Iterator[Step]]
"""(rank, size, count, root)"""
Blocked = Callable[[int, int, Sequence[int]], Iterator[Step]]
"""(rank, size, counts): elements of each rank's block."""
RootedBlocked = Callable[[int, int, Sequence[int], int], Iterator[Step]]
"""(rank, size, counts, root)"""
Exchanged = Callable[[int, int, Sequence[int], Sequence[int]], Iterator[Step]]
"""(rank, size, sent, received): elements that this rank sends to each rank, and gets from each."""


@dataclass(frozen=True)
class Levels:
    """What a hierarchy by shards is made of.

    Attributes:
        nodes: Node of each rank.
        intra: Among the ranks of one node.
        inter: Across the nodes.
    """

    nodes: tuple[int, ...]
    intra: Algorithm
    inter: Algorithm

    @cached_property
    def carriers(self) -> int:
        """How many ranks of every node carry a shard."""
        return min(Counter(self.nodes).values())


@dataclass(frozen=True)
class Algorithm:
    """The schedules of one algorithm; None for a collective that it does not serve.

    Attributes:
        name: Its name in backend expressions.
        separate_input: Collectives whose schedule sends from an input of its own, which receives never touch.
        levels: Of a hierarchy whose all-reduce is by shards; None for all others.
    """

    name: str
    all_reduce: Counted | None = None
    reduce_scatter: Blocked | None = None
    all_gather: Blocked | None = None
    broadcast: Rooted | None = None
    reduce: Rooted | None = None
    gather: RootedBlocked | None = None
    scatter: RootedBlocked | None = None
    all_to_all: Exchanged | None = None
    barrier: Plain | None = None
    separate_input: frozenset[str] = frozenset()
    levels: Levels | None = None

    @property
    def collectives(self) -> tuple[str, ...]:
        """The collectives that it serves."""
        return tuple(name for name in COLLECTIVES if getattr(self, name) is not None)


COLLECTIVES = (
    "all_reduce",
    "reduce_scatter",
    "all_gather",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "barrier",
)
