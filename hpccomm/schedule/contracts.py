"""What every collective starts from and must end with on each rank; the other half of what `verify` needs.

Blocks lie in rank order: block r of ``counts`` begins where the blocks before it end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hpccomm.schedule.step import Interval, blocks


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an interval must hold in the end.

    Attributes:
        start: First element.
        stop: The element after the last.
        ranks: Whose contributions, each once: bit r stands for rank r.
        shift: Element i must hold element ``i + shift`` of their inputs.
    """

    start: int
    stop: int
    ranks: int
    shift: int = 0


@dataclass(frozen=True)
class Contract:
    """One collective among so many ranks with so many elements.

    Attributes:
        name: The collective.
        arguments: What each rank's schedule is called with after rank and size.
        lengths: Elements of each rank's input and output; in one buffer, it is as long as the longer of them.
        held: Where each rank's input lies; all else is undefined.
        wanted: What each rank must end with.
        root: The root's rank, where there is one.
        same_bits: Whether all ranks must add in the same order.
        synchronises: Whether no rank may end before all have begun.
    """

    name: str
    arguments: tuple[tuple[Any, ...], ...]
    lengths: tuple[tuple[int, int], ...]
    held: tuple[Interval, ...]
    wanted: tuple[tuple[Wanted, ...], ...]
    root: int | None = None
    same_bits: bool = False
    synchronises: bool = False

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.arguments)

    def __str__(self) -> str:
        root = "" if self.root is None else f" with root {self.root}"
        return f"{self.name} of {max(map(max, self.lengths))} elements on {self.size} ranks{root}"


def all_reduce(size: int, count: int) -> Contract:
    """Every rank gets the sum of all inputs, to the same bits."""
    whole = (Wanted(0, count, (1 << size) - 1),)
    held, lengths = ((0, count),) * size, ((count, count),) * size
    return Contract("all_reduce", ((count,),) * size, lengths, held, (whole,) * size, same_bits=True)


def reduce_scatter(counts: Sequence[int]) -> Contract:
    """Rank r gets block r of the sum, in its place; the other blocks may hold anything."""
    size, total, everyone = len(counts), sum(counts), (1 << len(counts)) - 1
    wanted = tuple((Wanted(start, stop, everyone),) for start, stop in blocks(counts))
    return Contract(
        "reduce_scatter", ((tuple(counts),),) * size, ((total, total),) * size, ((0, total),) * size, wanted
    )


def all_gather(counts: Sequence[int]) -> Contract:
    """Every rank gets all blocks; rank r starts with block r in its place."""
    size, total = len(counts), sum(counts)
    places = blocks(counts)
    wanted = tuple(Wanted(start, stop, 1 << rank) for rank, (start, stop) in enumerate(places))
    return Contract("all_gather", ((tuple(counts),),) * size, ((total, total),) * size, tuple(places), (wanted,) * size)


def broadcast(size: int, count: int, root: int) -> Contract:
    """Every rank gets the root's input."""
    held = tuple((0, count) if rank == root else (0, 0) for rank in range(size))
    wanted = (Wanted(0, count, 1 << root),)
    return Contract("broadcast", ((count, root),) * size, ((count, count),) * size, held, (wanted,) * size, root)


def reduce(size: int, count: int, root: int) -> Contract:
    """The root gets the sum of all inputs; the other buffers may hold anything."""
    whole = (Wanted(0, count, (1 << size) - 1),)
    wanted = tuple(whole if rank == root else () for rank in range(size))
    return Contract("reduce", ((count, root),) * size, ((count, count),) * size, ((0, count),) * size, wanted, root)


def gather(counts: Sequence[int], root: int) -> Contract:
    """The root gets all blocks; rank r starts with block r in its place in a buffer as long as all of them."""
    whole = all_gather(counts)
    wanted = tuple(blocks if rank == root else () for rank, blocks in enumerate(whole.wanted))
    return Contract("gather", ((tuple(counts), root),) * whole.size, whole.lengths, whole.held, wanted, root)


def scatter(counts: Sequence[int], root: int) -> Contract:
    """Rank r gets block r of the root's input, in its place in a buffer as long as all blocks."""
    size, total = len(counts), sum(counts)
    held = tuple((0, total) if rank == root else (0, 0) for rank in range(size))
    wanted = tuple((Wanted(start, stop, 1 << root),) for start, stop in blocks(counts))
    return Contract("scatter", ((tuple(counts), root),) * size, ((total, total),) * size, held, wanted, root)


def all_to_all(matrix: Sequence[Sequence[int]]) -> Contract:
    """Rank r gets from rank s the block that s has for r; ``matrix[s][r]`` is its length."""
    columns = [tuple(column) for column in zip(*matrix, strict=True)]
    sent, received = [blocks(row) for row in matrix], [blocks(column) for column in columns]
    lengths = tuple((sum(row), sum(column)) for row, column in zip(matrix, columns, strict=True))
    wanted = tuple(
        tuple(
            Wanted(*place, 1 << source, sent[source][rank][0] - place[0]) for source, place in enumerate(received[rank])
        )
        for rank in range(len(matrix))
    )
    arguments = tuple((tuple(row), column) for row, column in zip(matrix, columns, strict=True))
    return Contract("all_to_all", arguments, lengths, tuple((0, total) for total, _ in lengths), wanted)


def barrier(size: int) -> Contract:
    """No rank ends before all have begun; messages are the one element of a buffer, whatever it holds."""
    nothing: tuple[tuple[Wanted, ...], ...] = ((),) * size
    return Contract("barrier", ((),) * size, ((1, 1),) * size, ((0, 1),) * size, nothing, synchronises=True)
