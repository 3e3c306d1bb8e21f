"""Calls of the collectives that move tensors between all ranks or from or to a root."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from fuzz.layouts import Placed, stacked
from fuzz.seat import Call, Seat, Written
from fuzz.works import works


def broadcast(seat: Seat) -> Call:
    """Overwrite a tensor with the root's."""
    mine, root = seat.reused(), seat.part.root

    def begin() -> list[dist.Work]:
        if seat.part.direct:
            return works(seat.group.broadcast([mine.tensor], seat.chosen(c10d.BroadcastOptions, rootRank=root)))
        return works(dist.broadcast(mine.tensor, root, **seat.options))

    if root == seat.rank:
        return Call(begin, kept=[mine])
    return Call(begin, [Written(mine, seat.values(root, read=False))])


def all_gather(seat: Seat) -> Call:
    """Gather a tensor of every rank into a list."""
    return _all_gather(seat, [seat.part.shape] * seat.size)


def all_gather_uneven(seat: Seat) -> Call:
    """Gather tensors of different sizes into a list."""
    return _all_gather(seat, [(seat.part.salt // 3**rank % 5, 2) for rank in seat.ranks])


def _all_gather(seat: Seat, shapes: list[tuple[int, ...]]) -> Call:
    source, outputs = seat.read(shape=shapes[seat.rank]), [seat.empty(shape) for shape in shapes]

    def begin() -> list[dist.Work]:
        blocks = [one.tensor for one in outputs]
        if seat.part.direct:
            return works(seat.group.allgather([blocks], [source.tensor], seat.chosen(c10d.AllgatherOptions)))
        return works(dist.all_gather(blocks, source.tensor, **seat.options))

    written = [Written(one, seat.values(rank, shape=shapes[rank]), everywhere=True) for rank, one in enumerate(outputs)]
    return Call(begin, written, [source])


def all_gather_tensor(seat: Seat) -> Call:
    """Gather a tensor of every rank into one."""
    source, output = seat.read(), seat.empty(stacked(seat.part.shape, seat.size))

    def begin() -> list[dist.Work]:
        return _all_gather_tensor(seat, output.tensor, source.tensor)

    return Call(begin, [_gathered(seat, output)], [source])


def all_gather_in_place(seat: Seat) -> Call:
    """Gather a tensor of every rank into one that holds this rank's in its place."""
    noise = seat.empty(stacked(seat.part.shape, seat.size)).content
    output = Placed(noise, "dense", torch.Generator())
    source = output.part(seat.rank, seat.size)
    source.tensor.copy_(seat.values(seat.rank).reshape(-1))

    def begin() -> list[dist.Work]:
        return _all_gather_tensor(seat, output.tensor, source.tensor)

    return Call(begin, [_gathered(seat, output)])


def all_gather_in_manager(seat: Seat) -> Call:
    """Gather three times by calls that torch makes one."""
    sources = [seat.read() for _ in range(3)]
    outputs = [seat.empty(stacked(seat.part.shape, seat.size)) for _ in range(3)]

    def begin() -> list[dist.Work]:
        pairs = [(output.tensor, source.tensor) for output, source in zip(outputs, sources, strict=True)]
        if seat.part.direct:
            chosen = seat.chosen(c10d.AllgatherOptions)
            return works(seat.group.allgather_into_tensor_coalesced(*map(list, zip(*pairs, strict=True)), chosen))
        with dist._coalescing_manager(seat.group, async_ops=seat.asynchronous) as manager:
            for output, source in pairs:
                dist.all_gather_into_tensor(output, source, group=seat.group)
        return works(manager if seat.asynchronous else None)

    return Call(begin, [_gathered(seat, output) for output in outputs], sources)


def _all_gather_tensor(seat: Seat, output: torch.Tensor, source: torch.Tensor) -> list[dist.Work]:
    if seat.part.direct:
        return works(seat.group._allgather_base(output, source, seat.chosen(c10d.AllgatherOptions)))
    return works(dist.all_gather_into_tensor(output, source, **seat.options))


def _gathered(seat: Seat, output: Placed) -> Written:
    expected = torch.cat([seat.values(rank).reshape(-1) for rank in seat.ranks])
    return Written(output, expected.view(output.shape), everywhere=True)


def gather(seat: Seat) -> Call:
    """Gather a tensor of every rank into the root's list."""
    source, root = seat.read(), seat.part.root
    outputs = [seat.empty() for _ in seat.ranks] if root == seat.rank else []

    def begin() -> list[dist.Work]:
        blocks = [one.tensor for one in outputs]
        if seat.part.direct:
            options = seat.chosen(c10d.GatherOptions, rootRank=root)
            return works(seat.group.gather([blocks] if blocks else [], [source.tensor], options))
        return works(dist.gather(source.tensor, blocks or None, root, **seat.options))

    return Call(begin, [Written(one, seat.values(rank)) for rank, one in enumerate(outputs)], [source])


def scatter(seat: Seat) -> Call:
    """Give every rank its tensor of the root's list."""
    output, root = seat.empty(), seat.part.root
    inputs = [seat.read(rank) for rank in seat.ranks] if root == seat.rank else []

    def begin() -> list[dist.Work]:
        blocks = [one.tensor for one in inputs]
        if seat.part.direct:
            options = seat.chosen(c10d.ScatterOptions, rootRank=root)
            return works(seat.group.scatter([output.tensor], [blocks] if blocks else [], options))
        return works(dist.scatter(output.tensor, blocks or None, root, **seat.options))

    return Call(begin, [Written(output, seat.values(root, seat.rank))], inputs)
