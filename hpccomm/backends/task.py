"""One operation that somebody else may step: the progress engine, or a thread that waits for it.

A task's lock is held while it is stepped. Whoever finds it ended sets its event and completes its futures. It knows
neither the engine's queues nor any backend.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import torch

from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.backends.calls import Call, call_threads
from hpccomm.backends.drive import GroupDeadError, OverdueError, begin_waiting, drive, give_up_if_due, try_ahead
from hpccomm.backends.lane import Carried
from hpccomm.watch.flight import P2P, Entry, GroupLog


class Task:
    """An operation on its way.

    Args:
        operation: The operation; it must not be stepped by anybody else.
        entry: Its record.
        log: The record of its group.
        timeout_s: Its deadline in seconds from when it is begun.
        tensors: Its results, kept until it has ended.
        name_error: Turns what it failed with into what its waiters get.

    Attributes:
        lock: Held while it is stepped.
        error: What its waiters get, or None.
    """

    def __init__(
        self,
        operation: Operation,
        entry: Entry,
        log: GroupLog,
        *,
        timeout_s: float,
        tensors: Sequence[Any],
        name_error: Callable[[Entry, Exception], Exception],
    ) -> None:
        self.lock = threading.Lock()
        self.entry, self.log, self.tensors = entry, log, tensors
        self.timeout_s = timeout_s
        self.error: Exception | None = None
        self._operation, self._name_error = operation, name_error
        self._carried = operation if type(operation) is Carried else None
        self._waits: str | LibraryCall | None = None
        self._call: Call | None = None
        self._begun = False
        self._ended = threading.Event()
        self._futures: list[torch.futures.Future[Any]] = []

    @property
    def ended(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def begin(self) -> bool:
        """Step it for the first time, and tell whether it has ended."""
        self._begun = True
        if self.entry.collective not in P2P:
            self.log.current = self.entry
        return self._attempt(self._first)

    def step(self) -> bool:
        """Go on where that needs no waiting, and tell whether it has ended; the lock must be held."""
        if self.ended or not self._begun:
            return self.ended or self.begin()
        if self._call is None and isinstance(self._waits, LibraryCall):
            return self._attempt(self._call_in_thread)
        if self._call is not None and not self._call.ended:
            return False
        return self._attempt(self._next)

    def drive(self, crowded: bool) -> bool:
        """Step it to its end in this thread, unless a call of it is under way in another; the lock must be held."""
        if self._call is not None or (not self._begun and self.begin()):
            return self.ended
        return self.ended or self._attempt(lambda: self._drive(crowded))

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended, and tell whether it has; without a time, as long as that takes."""
        return self._ended.wait(timeout_s)

    def extend(self, timeout_s: float) -> None:
        """Give it another deadline, in seconds from now, unless it has ended."""
        self.timeout_s = timeout_s
        if self._begun and not self.ended:
            self.entry.deadline_s = time.monotonic() + timeout_s

    def overdue(self) -> Exception:
        """Give the error of a waiter whose time has passed; the group is dead from here on."""
        return self._name_error(self.entry, OverdueError(self.entry.waiting_for or "its turn"))

    def fail(self, error: Exception) -> None:
        """End it without stepping it any more; the lock must be held."""
        if not self.ended:
            self._operation.close()
            self._end(error)

    def future(self) -> torch.futures.Future[Any]:
        """Give a future of the tensors that is completed when it ends, with an exception where it fails."""
        base: torch.futures.Future[Any] = self._carried.device.future() if self._carried else torch.futures.Future()
        future = base.then(self._outcome)  # a callback that raises; an exception set from Python crashes DDP
        self._futures.append(base)
        if self.ended:
            self._complete_futures()
        return future

    def _first(self) -> str | LibraryCall | None:
        if self.log.refuses(self.entry):
            raise GroupDeadError(self.log.why_dead)
        begin_waiting(self.entry, self.timeout_s)
        return try_ahead(self._operation)

    def _drive(self, crowded: bool) -> None:
        assert self._waits is not None
        drive(self._operation, self._waits, self.entry, self.log, crowded=crowded)

    def _call_in_thread(self) -> str | LibraryCall | None:
        assert isinstance(self._waits, LibraryCall)
        give_up_if_due(self.entry, self.log)
        self._call = call_threads.make(self._waits, self.entry)
        return self._waits

    def _next(self) -> str | LibraryCall | None:
        call, self._call = self._call, None
        if call is None:
            give_up_if_due(self.entry, self.log)
        elif call.error is not None:
            raise call.error
        return next(self._operation, None)

    def _attempt(self, go_on: Callable[[], str | LibraryCall | None]) -> bool:
        try:
            self._waits = go_on()
        except Exception as error:
            self._operation.close()
            self._end(self._name_error(self.entry, error))
            return True
        except BaseException:
            self.fail(self._name_error(self.entry, InterruptedError("it was interrupted")))
            raise
        if self._waits is None:
            self._end(None)
        elif isinstance(self._waits, str):
            self.entry.waiting_for = self._waits
        return self.ended

    def _end(self, error: Exception | None) -> None:
        self.error = error
        if self._carried is not None and error is None:
            self.log.watch(self.entry, self._carried.done.query)
        else:
            self.entry.end("failed" if error else "done")
        self.log.forget(self.entry)
        self._ended.set()
        self._complete_futures()

    def _complete_futures(self) -> None:
        carried = self._carried
        around = carried.device.on(carried.stream) if carried is not None else nullcontext()
        with around, suppress(IndexError):  # two threads may come here at once
            while True:
                self._futures.pop().set_result(self.tensors)

    def _outcome(self, _: torch.futures.Future[Any]) -> Any:
        if self.error is not None:
            raise self.error
        return self.tensors
