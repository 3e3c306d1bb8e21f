"""Calls of all-to-all, of objects, and of the barrier."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from fuzz.layouts import stacked
from fuzz.seat import Call, Seat, Written
from fuzz.works import works


def all_to_all(seat: Seat) -> Call:
    """Exchange a tensor of its own size with each rank."""
    inputs = [seat.read(rank, shape=(_count(seat, seat.rank, rank), 3)) for rank in seat.ranks]
    outputs = [seat.empty((_count(seat, rank, seat.rank), 3)) for rank in seat.ranks]

    def begin() -> list[dist.Work]:
        into, out = [one.tensor for one in outputs], [one.tensor for one in inputs]
        if seat.part.direct:
            return works(seat.group.alltoall(into, out, seat.chosen(c10d.AllToAllOptions)))
        return works(dist.all_to_all(into, out, **seat.options))

    written = [
        Written(one, seat.values(rank, seat.rank, shape=(_count(seat, rank, seat.rank), 3)))
        for rank, one in enumerate(outputs)
    ]
    return Call(begin, written, inputs)


def all_to_all_single(seat: Seat) -> Call:
    """Exchange equal blocks of one tensor."""
    shape = seat.part.shape or (1,)
    source, output = seat.whole(seat.rank), seat.empty(stacked(shape, seat.size))
    expected = torch.cat([seat.values(rank, seat.rank).reshape(-1) for rank in seat.ranks])

    def begin() -> list[dist.Work]:
        return _all_to_all_single(seat, output.tensor, source.tensor, None, None)

    return Call(begin, [Written(output, expected.view(output.shape))], [source])


def all_to_all_uneven(seat: Seat) -> Call:
    """Exchange rows of one tensor, as many with each rank as it says, none at times."""
    sent = [_count(seat, seat.rank, rank) for rank in seat.ranks]
    received = [_count(seat, rank, seat.rank) for rank in seat.ranks]
    rows = [seat.values(seat.rank, rank, shape=(count, 2)) for rank, count in enumerate(sent)]
    source, output = seat.placed(torch.cat(rows)), seat.empty((sum(received), 2))
    expected = [seat.values(rank, seat.rank, shape=(count, 2)) for rank, count in enumerate(received)]

    def begin() -> list[dist.Work]:
        return _all_to_all_single(seat, output.tensor, source.tensor, received, sent)

    return Call(begin, [Written(output, torch.cat(expected))], [source])


def _all_to_all_single(
    seat: Seat, output: torch.Tensor, source: torch.Tensor, received: list[int] | None, sent: list[int] | None
) -> list[dist.Work]:
    if seat.part.direct:
        options = seat.chosen(c10d.AllToAllOptions)
        return works(seat.group.alltoall_base(output, source, received or [], sent or [], options))
    return works(dist.all_to_all_single(output, source, received, sent, **seat.options))


def _count(seat: Seat, source: int, dest: int) -> int:
    """Give how many rows one rank sends another one; a third of them none."""
    drawn = (seat.part.salt // 7 ** (source * seat.size + dest) + 3 * source + 5 * dest) % 6
    return max(0, drawn - 1)


def _object(seat: Seat, rank: int) -> object:
    """Give an object of any rank, of a size of its own."""
    salt = seat.part.salt
    kinds: list[object] = [None, {"rank": rank, "text": "x" * (salt * rank % 90)}, list(range(rank)), (rank, 2.5, "ä")]
    return kinds[(salt + rank) % len(kinds)]


def all_gather_object(seat: Seat) -> Call:
    """Gather an object of every rank."""
    found: list[object] = [None] * seat.size

    def begin() -> list[dist.Work]:
        return works(dist.all_gather_object(found, _object(seat, seat.rank), seat.group))

    return Call(begin, objects=lambda: (found, [_object(seat, rank) for rank in seat.ranks]))


def broadcast_object_list(seat: Seat) -> Call:
    """Overwrite a list of objects with the root's."""
    root = seat.part.root
    found = [_object(seat, seat.rank + item) for item in range(2)]

    def begin() -> list[dist.Work]:
        return works(dist.broadcast_object_list(found, root, seat.group))

    return Call(begin, objects=lambda: (found, [_object(seat, root + item) for item in range(2)]))


def gather_object(seat: Seat) -> Call:
    """Gather an object of every rank into the root's list."""
    root = seat.part.root
    found: list[object] | None = [None] * seat.size if root == seat.rank else None
    expected = None if found is None else [_object(seat, rank) for rank in seat.ranks]

    def begin() -> list[dist.Work]:
        return works(dist.gather_object(_object(seat, seat.rank), found, root, seat.group))

    return Call(begin, objects=lambda: (found, expected))


def scatter_object_list(seat: Seat) -> Call:
    """Give every rank its object of the root's list."""
    root, found = seat.part.root, [object()]
    given = [_object(seat, rank) for rank in seat.ranks] if root == seat.rank else None

    def begin() -> list[dist.Work]:
        return works(dist.scatter_object_list(found, given, root, seat.group))

    return Call(begin, objects=lambda: (found, [_object(seat, seat.rank)]))


def barrier(seat: Seat) -> Call:
    """Wait for all ranks."""

    def begin() -> list[dist.Work]:
        if seat.part.direct:
            return works(seat.group.barrier(seat.chosen(c10d.BarrierOptions)))
        return works(dist.barrier(**seat.options))

    return Call(begin, is_barrier=True)
