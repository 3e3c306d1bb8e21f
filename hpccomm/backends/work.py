"""What torch gets back for an operation: a Work that is done, or one that its owner still steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.base import Operation
from hpccomm.backends.c10d import Work


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

    def exception(self) -> None:
        """Give no exception."""
        return

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
    """A point-to-point operation that has been posted; `wait` steps it to its end.

    Args:
        operation: The operation, already stepped once, so that it is posted.
        finish: Steps it to its end against a deadline, or raises.
        tensors: Its results.
        source: The rank it receives from, or -1.
    """

    def __init__(
        self,
        operation: Operation,
        finish: Callable[[Operation, timedelta | None], None],
        tensors: Sequence[torch.Tensor],
        source: int,
    ) -> None:
        super().__init__()
        self._operation: Operation | None = operation
        self._finish, self._tensors, self._source = finish, list(tensors), source
        self.is_completed()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Step the operation to its end.

        Raises:
            DeadlineError: It did not end in time.
        """
        if self._operation is not None:
            self._finish(self._operation, timeout)
            self._operation = None
        return True

    def is_completed(self) -> bool:
        """Step the operation once and tell whether it has ended."""
        if self._operation is not None and next(self._operation, None) is None:
            self._operation = None
        return self._operation is None

    def is_success(self) -> bool:
        """Tell whether it has ended; one that fails raises where it is stepped."""
        return self._operation is None

    def result(self) -> list[torch.Tensor]:
        """Give the operation's tensors."""
        return self._tensors

    def source_rank(self) -> int:
        """Give the rank that this operation receives from."""
        return self._source

    def get_future(self) -> torch.futures.Future[Any]:
        """Give a future of the tensors, completed before it is returned."""
        self.wait()
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._tensors)
        return future
