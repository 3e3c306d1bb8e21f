"""Carry out a schedule's steps over any backend with send and recv; reductions are torch's, on the tensors' device.

The rules it keeps are stated in `hpccomm.schedule`, where they are proved sufficient. It knows no algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from hpccomm.backends.base import SCHEDULE_TAG, Backend, Operation, posted, together
from hpccomm.backends.c10d import Op
from hpccomm.backends.combine import COMBINE
from hpccomm.schedule import Interval, Step

Pending = list[tuple[Interval, Operation]]


def execute(
    steps: Iterable[Step],
    carrier: Backend,
    buffer: torch.Tensor,
    op: Op | None = None,
    *,
    source: torch.Tensor | None = None,
) -> Operation:
    """Carry out this rank's steps.

    Args:
        steps: The schedule of this rank; its intervals are elements of `buffer`.
        carrier: What sends and receives.
        buffer: A flat dense tensor, received into and, without `source`, sent from.
        op: How received data is reduced; None for schedules that reduce nothing.
        source: The separate input that sends read, for schedules made for one.
    """
    pending: Pending = []
    for step in steps:
        if step.dest == step.source == carrier.rank:
            _locally(step, buffer if source is None else source, buffer, op)
            continue
        if step.dest >= 0 and step.send[0] < step.send[1]:
            data = (buffer if source is None else source)[slice(*step.send)]
            sending = yield from posted(_in_pieces(carrier, carrier.send, data, step.dest))
            pending.append((step.send, sending))
        if step.source >= 0 and step.recv[0] < step.recv[1]:
            yield from _receive(step, carrier, buffer, op, pending if source is None else [])
    for _, sending in pending:
        yield from sending


def _receive(step: Step, carrier: Backend, buffer: torch.Tensor, op: Op | None, pending: Pending) -> Operation:
    """Receive one message and store it, or reduce it into what is there, once no send reads that any more."""
    target = buffer[slice(*step.recv)]
    if not step.reduce:
        yield from _finish_sends(pending, step.recv)
        yield from _in_pieces(carrier, carrier.recv, target, step.source)
        return
    arrived = torch.empty_like(target)
    yield from _in_pieces(carrier, carrier.recv, arrived, step.source)
    yield from _finish_sends(pending, step.recv)
    assert op is not None
    COMBINE[op](target, arrived)


def _in_pieces(carrier: Backend, move: Callable[..., Operation], data: torch.Tensor, peer: int) -> Operation:
    """Send or receive a message by as many calls of the carrier as its size needs; both ends cut it alike."""
    limit = max(1, carrier.max_count // data.element_size())
    if data.numel() <= limit:
        return move(data, peer, SCHEDULE_TAG)
    return together(move(piece, peer, SCHEDULE_TAG) for piece in torch.split(data, limit))


def _finish_sends(pending: Pending, interval: Interval) -> Operation:
    """Wait for the sends that still read some of an interval."""
    for entry in list(pending):
        (start, end), sending = entry
        if start < interval[1] and interval[0] < end:
            yield from sending
            pending.remove(entry)


def _locally(step: Step, source: torch.Tensor, buffer: torch.Tensor, op: Op | None) -> None:
    target, data = buffer[slice(*step.recv)], source[slice(*step.send)]
    if step.reduce:
        assert op is not None
        COMBINE[op](target, data)
    else:
        target.copy_(data)
