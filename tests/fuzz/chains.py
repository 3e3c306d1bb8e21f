"""Calls that begin one after the other on one tensor, and are waited for together: a group keeps their order."""

from __future__ import annotations

import torch.distributed as dist
from torch.distributed import ReduceOp
from torch.distributed import distributed_c10d as c10d

from fuzz.seat import Call, Seat, Written
from reference import has_meaning, reduced

_EXACT = (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def chain(seat: Seat) -> Call:
    """Reduce a tensor, broadcast the result, reduce that, and gather what came out."""
    part, root = seat.part, seat.part.root
    op = part.op if part.op in _EXACT and has_meaning(part.op, part.dtype) else ReduceOp.SUM
    mine = seat.reused()
    outputs = [seat.empty() for _ in seat.ranks] if root == seat.rank else []
    first = reduced(op, [seat.values(rank, read=False) for rank in seat.ranks]).to(part.dtype)
    second = reduced(op, [first] * seat.size).to(part.dtype)

    def begin() -> list[dist.Work]:
        group, into = seat.group, [one.tensor for one in outputs]
        return [
            group.allreduce([mine.tensor], seat.chosen(c10d.AllreduceOptions, reduceOp=op)),
            group.broadcast([mine.tensor], seat.chosen(c10d.BroadcastOptions, rootRank=root)),
            group.allreduce([mine.tensor], seat.chosen(c10d.AllreduceOptions, reduceOp=op)),
            group.gather([into] if into else [], [mine.tensor], seat.chosen(c10d.GatherOptions, rootRank=root)),
        ]

    return Call(begin, [Written(mine, second, everywhere=True), *(Written(one, second) for one in outputs)])
