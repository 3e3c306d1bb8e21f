"""Messages between two ranks: around a ring, or all to one rank that receives from any."""

from __future__ import annotations

from collections.abc import Callable

import torch.distributed as dist
from torch import Tensor

from fuzz.seat import Call, Seat, Written
from fuzz.works import works


def send_recv(seat: Seat) -> Call:
    """Pass a tensor on around the ring by calls that wait: the root sends first, the others receive first."""
    call, right, left = _ring(seat)
    (source,), output = call.kept, call.written[0].placed
    tag = _tag(seat)

    def begin() -> list[dist.Work]:
        moves = [
            lambda: dist.send(source.tensor, right, seat.group, tag),
            lambda: dist.recv(output.tensor, left, seat.group, tag),
        ]
        for move in moves if seat.rank == seat.part.root else moves[::-1]:
            move()
        return []

    if seat.part.direct:
        call.begin = lambda: _both(seat, call)
    else:
        call.begin = begin
    return call


def isend_irecv(seat: Seat) -> Call:
    """Send to the right and receive from the left at once."""

    def post(source: Tensor, right: int, output: Tensor, left: int) -> list[dist.Work]:
        receiving = dist.irecv(output, left, seat.group, _tag(seat))
        sending = dist.isend(source, right, seat.group, _tag(seat))
        return [work for work in (sending, receiving) if work is not None]

    return _at_once(seat, post)


def batch_isend_irecv(seat: Seat) -> Call:
    """Send to the right and receive from the left by one call."""

    def post(source: Tensor, right: int, output: Tensor, left: int) -> list[dist.Work]:
        sending = dist.P2POp(dist.isend, source, right, seat.group, _tag(seat))
        receiving = dist.P2POp(dist.irecv, output, left, seat.group, _tag(seat))
        return works(dist.batch_isend_irecv([sending, receiving]))

    return _at_once(seat, post)


def _at_once(seat: Seat, post: Callable[[Tensor, int, Tensor, int], list[dist.Work]]) -> Call:
    """Send to the right and receive from the left by torch's functions, or by the group's own methods."""
    call, right, left = _ring(seat)
    (source,), output = call.kept, call.written[0].placed
    call.begin = lambda: _both(seat, call) if seat.part.direct else post(source.tensor, right, output.tensor, left)
    return call


def recv_any(seat: Seat) -> Call:
    """Send all ranks' tensors to the root, which receives from any; the tensor says whose it is."""
    root, tag = seat.part.root, _tag(seat)
    source = seat.read()
    if seat.rank != root:
        return Call(lambda: works(seat.group.send([source.tensor], root, tag)), kept=[source])
    outputs = [seat.empty() for _ in range(seat.size - 1)]
    senders: list[int] = []
    call = Call(list, kept=[source], objects=lambda: (sorted(senders), [r for r in seat.ranks if r != root]))

    def begin() -> list[dist.Work]:
        for output in outputs:
            work = seat.group.recv_anysource([output.tensor], tag)
            work.wait()
            senders.append(work._source_rank())
            call.written.append(Written(output, seat.values(senders[-1])))
        return []

    call.begin = begin
    return call


def _ring(seat: Seat) -> tuple[Call, int, int]:
    right, left = (seat.rank + 1) % seat.size, (seat.rank - 1) % seat.size
    return Call(list, [Written(seat.empty(), seat.values(left))], [seat.read()]), right, left


def _both(seat: Seat, call: Call) -> list[dist.Work]:
    """Begin both ends by the group's own methods."""
    right, left = (seat.rank + 1) % seat.size, (seat.rank - 1) % seat.size
    (source,), output, tag = call.kept, call.written[0].placed, _tag(seat)
    return [
        seat.group.recv([output.tensor], left, tag),
        seat.group.send([source.tensor], right, tag),
    ]


def _tag(seat: Seat) -> int:
    return seat.part.salt % 1000
