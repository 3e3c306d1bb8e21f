"""Run one group's operations: number them, hold their deadlines, name what failed, refuse a dead group.

Synchronous and asynchronous collectives run at once in the caller's thread; send and recv are posted and stepped by
their work. It stands between torch's face and the front door and knows no backend in particular.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.door import FrontDoor
from hpccomm.backends.drive import OverdueError, drive
from hpccomm.backends.support import dtype_name
from hpccomm.backends.work import DoneWork, PendingWork
from hpccomm.errors import BackendError, DeadlineError, HpccommError, OptionError, UnsupportedError
from hpccomm.units import format_bytes


class Runner:
    """The operations of one group.

    Args:
        backend: What carries them.
        name: The group's name, for messages.
        crowded: Whether more ranks than cores share this host.

    Attributes:
        sequence: How many operations were started.
        timeout_s: The deadline of operations that give none, in seconds.
    """

    def __init__(self, backend: Backend, *, name: str, crowded: bool) -> None:
        self.backend = backend
        self.door = FrontDoor(backend)
        self.expression = backend.expression
        self.timeout_s = backend.context.timeout_s
        self.sequence = 0
        self._name, self._crowded = name, crowded
        self._why_dead: str | None = None
        self._closed = False
        self._done = DoneWork()

    def run(self, what: str, operation: Operation, tensors: Sequence[Any], options: Any) -> DoneWork:
        """Run an operation to its end and give its work."""
        self.sequence += 1
        if self._why_dead is not None:
            raise self._dead(what, tensors)
        try:
            if next(operation, None) is not None:
                drive(operation, self._timeout(options), crowded=self._crowded)
        except Exception as error:
            raise self._failed(what, tensors, error) from error
        if options is not None and getattr(options, "asyncOp", True) is False:
            return self._done
        return DoneWork(tensors)

    def run_all(self, what: str, operations: Iterable[Operation], tensors: Sequence[Any], options: Any) -> DoneWork:
        """Run several operations, one after the other, under one deadline."""
        return self.run(what, _chained(operations), tensors, options)

    def post(self, what: str, operation: Operation, tensors: Sequence[torch.Tensor], source: int) -> PendingWork:
        """Start a point-to-point operation and give the work that ends it."""
        self.sequence += 1
        if self._why_dead is not None:
            raise self._dead(what, tensors)

        def finish(operation: Operation, timeout: timedelta | None) -> None:
            try:
                drive(operation, _seconds(timeout) or self.timeout_s, crowded=self._crowded)
            except Exception as error:
                raise self._failed(what, tensors, error) from error

        return PendingWork(operation, finish, tensors, source)

    def end(self, why: str) -> None:
        """Refuse all further operations, for a reason."""
        self._why_dead = self._why_dead or why

    def close(self) -> None:
        """Free the backend, once."""
        if not self._closed:
            self._closed = True
            self.end("it was shut down")
            self.backend.close()

    def _timeout(self, options: Any) -> float:
        """Give a call's deadline; torch's options are slow to read, so this is asked only where one waits."""
        return _seconds(getattr(options, "timeout", None)) or self.timeout_s

    def _failed(self, what: str, tensors: Sequence[Any], error: Exception) -> Exception:
        if isinstance(error, OverdueError):
            self.end(f"operation {self.sequence} passed its deadline")
            return DeadlineError(
                self._describe(what, tensors),
                found=f"{error} on rank {self.backend.rank}",
                remedy="look for the rank that is missing or slow; the group is dead, make a new one",
            )
        if isinstance(error, (UnsupportedError, OptionError)):
            return error
        if isinstance(error, HpccommError):
            self.end(error.summary)
            return error
        self.end(f"operation {self.sequence} failed")
        return BackendError(
            self._describe(what, tensors),
            found=f"{type(error).__name__} on rank {self.backend.rank}: {error}",
            remedy="look for the rank that failed first; the group is dead, make a new one",
        )

    def _dead(self, what: str, tensors: Sequence[Any]) -> BackendError:
        return BackendError(
            self._describe(what, tensors),
            found=f"the group is dead: {self._why_dead}",
            remedy="make a new group",
        )

    def _describe(self, what: str, tensors: Sequence[Any]) -> str:
        flat = [t for entry in tensors for t in ([entry] if isinstance(entry, torch.Tensor) else entry)]
        size = sum(tensor.numel() * tensor.element_size() for tensor in flat)
        data = f" of {format_bytes(size)} {dtype_name(flat[0].dtype)}" if flat else ""
        return f"{what}{data}, operation {self.sequence} of group {self._name} over {self.expression}"


def _chained(operations: Iterable[Operation]) -> Operation:
    for operation in operations:
        yield from operation


def _seconds(timeout: timedelta | None) -> float | None:
    return timeout.total_seconds() if timeout is not None and timeout.total_seconds() > 0 else None
