"""Several messages that torch posts as one (``batch_isend_irecv``): all begin before any is waited for.

Torch before 2.14 posts them one after the other to groups that are made in Python. NCCL's then wait for each other
where two ranks send to each other what its buffers do not hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from hpccomm.backends.base import Operation, together
from hpccomm.backends.lane import combined
from hpccomm.backends.runner import Runner
from hpccomm.backends.work import DoneWork, PendingWork, StreamWork
from hpccomm.watch.flight import Entry, GroupLog


@dataclass(frozen=True)
class Message:
    """A send or receive that is held back.

    Attributes:
        what: ``send`` or ``recv``.
        operation: The operation, which has not begun.
        tensors: What it sends or fills.
        peer: The rank at the other end.
        tag: The message's tag.
    """

    what: str
    operation: Operation
    tensors: Sequence[torch.Tensor]
    peer: int
    tag: int


def post(runner: Runner, messages: Sequence[Message]) -> DoneWork | PendingWork | StreamWork:
    """Post messages together, and give the work that ends them all."""
    if not messages:
        return DoneWork()
    first, *others = messages
    entries = [
        runner.log.begin_exchange(one.what, one.tensors[0].numel(), one.tensors[0].dtype, one.peer, one.tag)
        for one in others
    ]

    def all_of(parts: Iterable[Operation]) -> Operation:
        return _noted(together(parts), runner.log, entries)

    operation = combined([one.operation for one in messages], all_of)
    tensors = [tensor for one in messages for tensor in one.tensors]
    return runner.post(first.what, operation, tensors, first.peer, first.tag)


def _noted(operation: Operation, log: GroupLog, entries: Sequence[Entry]) -> Operation:
    """Note the end of the messages that the operation's own record does not name."""
    state = "failed"
    try:
        yield from operation
        state = "done"
    finally:
        for entry in entries:
            entry.end(state)
            log.forget(entry)
