"""What torch gets back for an operation: a Work that is done, one that the engine steps, or one on a GPU's streams."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.c10d import Work
from hpccomm.backends.engine import Line, engine
from hpccomm.backends.lane import Carried
from hpccomm.backends.task import Task


class DoneWork(Work):
    """An operation that ended before it was handed out.

    Args:
        tensors: Its results, which its future holds.
    """

    def __init__(self, tensors: Sequence[Any] = ()) -> None:
        super().__init__()
        self._tensors = list(tensors)
        self._future: torch.futures.Future[Any] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return at once."""
        return True

    def is_completed(self) -> bool:
        """Tell that it is done."""
        return True

    def is_success(self) -> bool:
        """Tell that it succeeded."""
        return True

    def exception(self) -> Exception | None:
        """Give no exception."""
        return None

    def synchronize(self) -> None:
        """Return at once."""

    def result(self) -> list[Any]:
        """Give the operation's tensors."""
        return self._tensors

    def get_future(self) -> torch.futures.Future[Any]:
        """Give a completed future of the operation's tensors."""
        if self._future is None:
            self._future = torch.futures.Future()
            self._future.set_result(self._tensors)
        return self._future


class PendingWork(Work):
    """An operation on its way.

    Args:
        task: The operation; kept by the engine too, so that dropping this handle is safe.
        line: The queue that it stands in, or None for point-to-point operations.
        sources: Holds the rank at the other end, once that is known.
    """

    def __init__(self, task: Task, line: Line | None = None, sources: Sequence[int] = ()) -> None:
        super().__init__()
        self._task, self._line, self._sources = task, line, sources

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the operation's end.

        Args:
            timeout: A new deadline for the operation, from now on; None leaves it the one it has.

        Raises:
            DeadlineError: It did not end in time.
        """
        limit = timeout.total_seconds() if timeout is not None and timeout.total_seconds() > 0 else None
        if limit is not None:
            self._task.extend(limit)
        if not engine.wait(self._task, self._line, limit):
            raise self._task.overdue()
        if self._task.error is not None:
            raise self._task.error
        return True

    def is_completed(self) -> bool:
        """Tell whether the operation has ended, well or not."""
        return engine.poll(self._task)

    def is_success(self) -> bool:
        """Tell whether the operation has ended well."""
        return engine.poll(self._task) and self._task.error is None

    def exception(self) -> Exception | None:
        """Give what the operation failed with, or None."""
        return self._task.error

    def synchronize(self) -> None:
        """Wait for the operation's end."""
        self.wait()

    def result(self) -> list[Any]:
        """Give the operation's tensors."""
        return list(self._task.tensors)

    def source_rank(self) -> int:
        """Give the rank of the group that this operation receives from; -1 while it is not known."""
        return self._sources[-1] if self._sources else -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """Give a future of the tensors; whatever waits for it, the engine completes it."""
        if not engine.threaded:
            engine.wait(self._task, self._line)
        return self._task.future()


class StreamWork(Work):
    """An operation whose work is queued on a GPU, as soon as its part on the host has ended.

    Args:
        work: Its part on the host.
        operation: The operation.
        tensors: Its results.
    """

    def __init__(self, work: DoneWork | PendingWork, operation: Carried, tensors: Sequence[Any]) -> None:
        super().__init__()
        self._work, self._operation, self._tensors = work, operation, list(tensors)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for the part on the host, and have the caller's stream wait for that on the GPU.

        Args:
            timeout: A new deadline for the part on the host, from now on.

        Raises:
            DeadlineError: That did not end in time.
        """
        self._work.wait(timeout)
        self._operation.let_wait()
        return True

    def is_completed(self) -> bool:
        """Tell whether the operation has ended on the GPU, or failed."""
        return self._work.is_completed() and (self.exception() is not None or self._operation.done.query())

    def is_success(self) -> bool:
        """Tell whether the operation has ended well on the GPU."""
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Give what the part on the host failed with, or None."""
        return self._work.exception()

    def synchronize(self) -> None:
        """Have the caller's stream wait."""
        self.wait()

    def result(self) -> list[Any]:
        """Give the operation's tensors."""
        return self._tensors

    def source_rank(self) -> int:
        """Give the rank of the group that this operation receives from; -1 while it is not known."""
        return self._work.source_rank() if isinstance(self._work, PendingWork) else -1

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Any]:
        """Give a future of the tensors, whose waiters' streams wait for the GPU."""
        if isinstance(self._work, PendingWork):
            return self._work.get_future()
        operation = self._operation
        future = operation.device.future()
        with operation.device.on(operation.stream):
            future.set_result(self._tensors)
        return future
