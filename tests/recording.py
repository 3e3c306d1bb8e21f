"""A device whose work is done late: what is queued in a stream waits until events are asked for, one piece at a time.

Whatever reads or writes memory before the stream has come to it gets the old values, as it would on a GPU. "Device
memory" is that of `tensor`. Everything that is asked of the device is kept in `told`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Stream:
    """Work in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queued: deque[Callable[[], bool]] = deque()
        self.taken = self.done = 0


class Event:
    """A place in a stream."""

    def __init__(self, device: RecordingDevice, stream: Stream) -> None:
        self.device, self.stream, self.place = device, stream, stream.taken

    def passed(self) -> bool:
        return self.stream.done >= self.place

    def query(self) -> bool:
        """Let the device do one more piece of work, and tell whether it has come past."""
        self.device.advance()
        return self.passed()


class RecordingDevice:
    """What `hpccomm.backends.device.Device` asks for."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.caller = Stream("caller")
        self.streams = [self.caller]
        self.held: Stream | None = None  # does nothing meanwhile
        self._threads = threading.local()
        self._lock = threading.RLock()
        self._memory: list[torch.Tensor] = []

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        """Put values into device memory."""
        self._memory.append(values.clone())
        return self._memory[-1]

    def compute(self, name: str, action: Callable[[], object]) -> None:
        """Queue a computation in the caller's stream."""
        self._queue(self.current(), name, action)

    def owns(self, tensor: torch.Tensor) -> bool:
        storage = tensor.untyped_storage().data_ptr()
        return any(storage == one.untyped_storage().data_ptr() for one in self._memory)

    def current(self) -> Stream:
        return getattr(self._threads, "stream", self.caller)

    def stream(self, *, urgent: bool = False) -> Stream:
        self.streams.append(Stream(f"stream{len(self.streams)}"))
        return self.streams[-1]

    @contextmanager
    def on(self, stream: Stream) -> Iterator[None]:
        before, self._threads.stream = self.current(), stream
        try:
            yield
        finally:
            self._threads.stream = before

    def record(self, stream: Stream) -> Event:
        return Event(self, stream)

    def wait(self, stream: Stream, event: Event) -> None:
        self._queue(stream, f"wait for {event.stream.name}", event.passed, is_wait=True)

    def keep(self, tensor: torch.Tensor, stream: Stream) -> None:
        self.told.append(f"keep on {stream.name}")

    def pinned(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.uint8)

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        name = "down" if self.owns(source) else "up"
        self._queue(self.current(), name, lambda: into.copy_(source))

    def future(self) -> torch.futures.Future[Any]:
        return torch.futures.Future()

    def advance(self, *, caller_first: bool = False) -> None:
        """Do a piece of work that waits for nothing; of the stream made last, so that what nothing orders goes wrong.

        Args:
            caller_first: Begin with the caller's stream instead.
        """
        with self._lock:
            for stream in self.streams if caller_first else reversed(self.streams):
                if stream is not self.held and stream.queued and stream.queued[0]():
                    stream.queued.popleft()
                    stream.done += 1
                    return

    def finish(self) -> None:
        """Do all work, the caller's as early as it may be done."""
        while any(stream.queued for stream in self.streams):
            left = sum(len(stream.queued) for stream in self.streams)
            self.advance(caller_first=True)
            assert sum(len(stream.queued) for stream in self.streams) < left, "streams wait for each other"

    def _queue(self, stream: Stream, name: str, action: Callable[[], object], *, is_wait: bool = False) -> None:
        def work() -> bool:
            result = action()
            if not is_wait:
                self.told.append(f"do {name}")
            return bool(result) if is_wait else True

        with self._lock:
            stream.taken += 1
            stream.queued.append(work)
            if not is_wait:
                self.told.append(f"queue {name}")
