"""Calls of the collectives that reduce."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from fuzz.layouts import Placed, stacked
from fuzz.seat import Call, Seat, Written
from fuzz.works import works


def all_reduce(seat: Seat) -> Call:
    """Reduce one tensor in place."""
    mine = seat.reused()

    def begin() -> list[dist.Work]:
        if seat.part.direct:
            options = seat.chosen(c10d.AllreduceOptions, reduceOp=seat.op)
            return works(seat.group.allreduce([mine.tensor], options))
        return works(dist.all_reduce(mine.tensor, seat.op, **seat.options))

    return Call(begin, [_everywhere(seat.total(mine, read=False))])


def all_reduce_coalesced(seat: Seat) -> Call:
    """Reduce three tensors in place by one call."""
    placed, written = _several(seat)
    tensors = [one.tensor for one in placed]

    def begin() -> list[dist.Work]:
        if seat.part.direct:
            options = seat.chosen(c10d.AllreduceCoalescedOptions, reduceOp=seat.op)
            return works(seat.group.allreduce_coalesced(tensors, options))
        return works(dist.all_reduce_coalesced(tensors, seat.op, **seat.options))

    return Call(begin, written)


def all_reduce_in_manager(seat: Seat) -> Call:
    """Reduce three tensors in place by calls that torch makes one."""
    placed, written = _several(seat)

    def begin() -> list[dist.Work]:
        if seat.part.direct:  # complex numbers in views that torch.distributed's functions do not take
            return works(seat.group.allreduce_coalesced([one.tensor for one in placed], _coalesced(seat)))
        with dist._coalescing_manager(seat.group, async_ops=seat.asynchronous) as manager:
            for one in placed:
                dist.all_reduce(one.tensor, seat.op, group=seat.group)
        return works(manager if seat.asynchronous else None)

    return Call(begin, written)


def reduce(seat: Seat) -> Call:
    """Reduce one tensor into the root's."""
    mine, root = seat.reused(), seat.part.root

    def begin() -> list[dist.Work]:
        if seat.part.direct:
            options = seat.chosen(c10d.ReduceOptions, reduceOp=seat.op, rootRank=root)
            return works(seat.group.reduce([mine.tensor], options))
        return works(dist.reduce(mine.tensor, root, seat.op, **seat.options))

    if root == seat.rank:
        return Call(begin, [seat.total(mine, read=False)])
    return Call(begin, kept=[mine])


def reduce_scatter(seat: Seat) -> Call:
    """Reduce a list of tensors of one shape and keep this rank's."""
    return _reduce_scatter(seat, lambda rank: seat.part.shape)


def reduce_scatter_uneven(seat: Seat) -> Call:
    """Reduce a list of tensors of different sizes and keep this rank's."""
    return _reduce_scatter(seat, lambda rank: (seat.part.salt // 3**rank % 5,))


def _reduce_scatter(seat: Seat, shape: Callable[[int], tuple[int, ...]]) -> Call:
    inputs = [seat.read(rank, shape=shape(rank)) for rank in seat.ranks]
    output = seat.empty(shape(seat.rank))

    def begin() -> list[dist.Work]:
        blocks = [one.tensor for one in inputs]
        if seat.part.direct:
            options = seat.chosen(c10d.ReduceScatterOptions, reduceOp=seat.op)
            return works(seat.group.reduce_scatter([output.tensor], [blocks], options))
        return works(dist.reduce_scatter(output.tensor, blocks, seat.op, **seat.options))

    return Call(begin, [seat.total(output, seat.rank, shape=shape(seat.rank))], inputs)


def reduce_scatter_tensor(seat: Seat) -> Call:
    """Reduce one tensor and keep this rank's block."""
    source, output = seat.whole(seat.rank), seat.empty()

    def begin() -> list[dist.Work]:
        return _reduce_scatter_tensor(seat, output.tensor, source.tensor)

    return Call(begin, [seat.total(output, seat.rank)], [source])


def reduce_scatter_in_place(seat: Seat) -> Call:
    """Reduce one tensor and keep this rank's block in its place there."""
    source = Placed(seat.whole(seat.rank).content, "dense", torch.Generator())
    output = source.part(seat.rank, seat.size)

    def begin() -> list[dist.Work]:
        return _reduce_scatter_tensor(seat, output.tensor, source.tensor)

    return Call(begin, [seat.total(output, seat.rank)])


def _reduce_scatter_tensor(seat: Seat, output: torch.Tensor, source: torch.Tensor) -> list[dist.Work]:
    if seat.part.direct:
        options = seat.chosen(c10d.ReduceScatterOptions, reduceOp=seat.op)
        return works(seat.group._reduce_scatter_base(output, source, options))
    return works(dist.reduce_scatter_tensor(output, source, seat.op, **seat.options))


def _several(seat: Seat) -> tuple[list[Placed], list[Written]]:
    shapes = [seat.part.shape, (3,), stacked(seat.part.shape, 2)]
    placed = [seat.reused(block, shape=shape) for block, shape in enumerate(shapes)]
    totals = [
        seat.total(one, block, shape=shape, read=False)
        for block, (one, shape) in enumerate(zip(placed, shapes, strict=True))
    ]
    return placed, [_everywhere(total) for total in totals]


def _coalesced(seat: Seat) -> c10d.AllreduceCoalescedOptions:
    options: c10d.AllreduceCoalescedOptions = seat.chosen(c10d.AllreduceCoalescedOptions, reduceOp=seat.op)
    return options


def _everywhere(written: Written) -> Written:
    written.everywhere = True
    return written
