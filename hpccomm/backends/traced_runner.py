"""Spans of a group's operations as its users call them, where a trace was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.describe import shape_of
from hpccomm.backends.lane import Carried
from hpccomm.backends.runner import AnyWork, Runner
from hpccomm.backends.traced import spanned
from hpccomm.backends.work import PendingWork, StreamWork
from hpccomm.timeline.recorder import OPERATIONS, Recorder, Span


class TracedRunner(Runner):
    """The operations of one group, each noted from its begin to its end.

    Args:
        recorder: Takes the notes.
        backend: What carries the operations.
        rest: As `Runner` takes it.
    """

    notes_all = True

    def __init__(self, recorder: Recorder, backend: Backend, *rest: Any, **named: Any) -> None:
        super().__init__(backend, *rest, **named)
        self._recorder = recorder
        self._track = recorder.track(f"group {self.log.name}", OPERATIONS)

    def run(self, what: str, operation: Operation, tensors: Sequence[Any], options: Any) -> AnyWork:
        """Run a collective, or begin it where the caller does not wait for it."""
        return super().run(what, self._noted(what, self.log.started + 1, operation, tensors), tensors, options)

    def post(
        self,
        what: str,
        operation: Operation,
        tensors: Sequence[torch.Tensor],
        peer: int,
        tag: int,
        *,
        found: Sequence[int] = (),
    ) -> PendingWork | StreamWork:
        """Begin a point-to-point operation and give the work that ends it."""
        noted = self._noted(what, self.log.exchanged + 1, operation, tensors)
        return super().post(what, noted, tensors, peer, tag, found=found)

    def _noted(self, what: str, sequence: int, operation: Operation, tensors: Sequence[Any]) -> Operation:
        count, dtype = shape_of(tensors)
        about: dict[str, Any] = {"operation": sequence}
        if dtype is not None:
            about |= {"bytes": count * dtype.itemsize, "dtype": str(dtype).removeprefix("torch.")}
        span = Span(self._track, what, about, self._recorder.clock())
        if type(operation) is Carried:
            return operation.inside(lambda inner: spanned(self._recorder, span, inner))
        return spanned(self._recorder, span, operation)
