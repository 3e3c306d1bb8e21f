"""Spans of what a backend and its parts do, where a trace was asked for; whatever is not traced knows nothing of it.

The registry builds every part of an expression, so that it is there that a backend's methods are replaced by ones that
note when their operations begin and end: the legs of a hierarchy, the messages of a schedule, the pieces of a tensor.
Times are the host's; what is queued on a GPU ends for it when it is queued.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.volume import MESSAGES, sent
from hpccomm.timeline.recorder import Recorder, Span

_METHODS = (
    *("all_reduce", "broadcast", "reduce_scatter", "all_gather", "reduce", "gather", "scatter", "all_to_all"),
    *("barrier", "send", "recv", "recv_any"),
)
_SENDS = {"send": "send to", "recv": "recv from"}


class _Here(threading.local):
    """What the thread steps just now."""

    span: Span | None = None


_here = _Here()


def spanned(
    recorder: Recorder, span: Span, operation: Operation, count: Callable[[], object] | None = None
) -> Operation:
    """Give an operation whose span is noted.

    Args:
        recorder: Takes the note.
        span: The span, as begun when it was asked for.
        operation: The operation.
        count: Counts what it has sent, unless parts of it have done so.
    """
    asked_s, span.began_s = span.began_s, recorder.clock()
    span.about["waited_us"] = round((span.began_s - asked_s) * 1e6, 3)
    if _here.span is not None:
        _here.span.has_parts = True
    try:
        while True:
            around, _here.span = _here.span, span
            try:
                waits = next(operation, None)
            finally:
                _here.span = around
            if waits is None:
                break
            yield waits
        if count is not None and not span.has_parts:
            count()
    except BaseException as error:
        span.about["error"] = "given up" if isinstance(error, GeneratorExit) else type(error).__name__
        raise
    finally:
        operation.close()
        recorder.end(span)


def traced(backend: Backend, recorder: Recorder) -> Backend:
    """Have a backend note what it does; one that does so already is left as it is."""
    if "barrier" not in vars(backend):
        part = backend.context.path.removeprefix("/").replace("/data", "", 1)
        track = recorder.track(f"group {part}", backend.expression)
        for name in _METHODS:
            setattr(backend, name, _noting(backend, name, recorder, track))
    return backend


def _noting(backend: Backend, name: str, recorder: Recorder, track: int) -> Callable[..., Operation]:
    method, members = getattr(backend, name), backend.context.members
    by_messages = name in MESSAGES

    def call(*arguments: Any) -> Operation:
        operation = method(*arguments)
        what = f"{_SENDS[name]} {members[arguments[1]]}" if name in _SENDS else name
        span = Span(track, what, _about(arguments), recorder.clock())

        def count() -> None:
            bytes_to: Mapping[int, int] = sent(name, backend.rank, backend.size, arguments)
            recorder.count({members[other]: many for other, many in bytes_to.items()}, by_messages=by_messages)

        return spanned(recorder, span, operation, count)

    return call


def _about(arguments: Any) -> dict[str, Any]:
    tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
    return {"bytes": max(one.nbytes for one in tensors)} if tensors else {}
