"""Threads that make libraries' blocking calls for the progress engine, so that no call holds the others up.

Two groups may be used in opposite orders on two ranks; a single thread that blocked in one group's call would then wait
for ever. Threads are kept for the next call.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from hpccomm.backends.base import LibraryCall
from hpccomm.backends.drive import make_call
from hpccomm.watch.flight import Entry

_STOP_S = 2.0


class Call:
    """A call that a thread makes.

    Attributes:
        ended: Whether it has returned or raised.
        error: What it raised, or None.
    """

    def __init__(self, call: LibraryCall, entry: Entry) -> None:
        self._call, self._entry = call, entry
        self.error: BaseException | None = None
        self.ended = False

    def make(self) -> None:
        """Make it; in its thread."""
        try:
            make_call(self._call, self._entry)
        except BaseException as error:
            self.error = error
        self.ended = True


class CallThreads:
    """As many threads as calls were under way at once.

    Attributes:
        on_end: Called in the thread after each call.
    """

    def __init__(self) -> None:
        self.on_end: Callable[[], None] = lambda: None
        self._waiting: list[queue.SimpleQueue[Call | None]] = []
        self._threads: list[threading.Thread] = []

    def make(self, call: LibraryCall, entry: Entry) -> Call:
        """Have a thread make a call."""
        made = Call(call, entry)
        try:
            calls = self._waiting.pop()
        except IndexError:
            calls = self._more()
        calls.put(made)
        return made

    def stop(self) -> None:
        """End the threads, but for those whose calls do not return."""
        while self._waiting:
            self._waiting.pop().put(None)
        threads, self._threads = self._threads, []
        end = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(end - time.monotonic(), 0))

    def _more(self) -> queue.SimpleQueue[Call | None]:
        calls: queue.SimpleQueue[Call | None] = queue.SimpleQueue()
        thread = threading.Thread(target=self._run, args=(calls,), name="hpccomm-library-call", daemon=True)
        self._threads.append(thread)
        thread.start()
        return calls

    def _run(self, calls: queue.SimpleQueue[Call | None]) -> None:
        while (call := calls.get()) is not None:
            call.make()
            del call  # and with it the buffers and the group
            self._waiting.append(calls)
            self.on_end()


call_threads = CallThreads()
"""Those of this process."""
