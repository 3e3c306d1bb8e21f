"""Signals that reach the watchdog at once, even while the main thread is inside a library's call.

Python's own handlers run only when the main thread is back in the interpreter; but the interpreter writes each
signal's number to a descriptor the moment it arrives.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType


class SignalPipe:
    """A pipe that signals' numbers arrive in.

    Args:
        numbers: The signals to take, where nothing else in this process handles them.

    Attributes:
        descriptor: The end to read, to be waited for.
        taken: The signals taken.
    """

    def __init__(self, numbers: Sequence[signal.Signals]) -> None:
        self.descriptor, self._write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.taken: list[signal.Signals] = []
        self._wakes = False
        if threading.current_thread() is not threading.main_thread():
            return
        for number in numbers:
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, self._handle)
                self.taken.append(number)
        before = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        self._wakes = before == -1
        if not self._wakes:
            signal.set_wakeup_fd(before)
        os.register_at_fork(after_in_child=self._leave)

    def read(self) -> list[int]:
        """Give the signals of `taken` that have arrived since the last call."""
        arrived: list[int] = []
        with suppress(BlockingIOError):
            arrived = list(os.read(self.descriptor, 4096))
        return [number for number in arrived if number in self.taken and signal.getsignal(number) == self._handle]

    def nudge(self) -> None:
        """Wake whoever waits for the descriptor."""
        with suppress(BlockingIOError):
            os.write(self._write_end, b"\0")

    def _leave(self) -> None:
        """Give a forked child its default handlers back, and keep its signals out of its parent's pipe."""
        if threading.current_thread() is threading.main_thread():
            if self._wakes:
                signal.set_wakeup_fd(-1)
            for number in self.taken:
                if signal.getsignal(number) == self._handle:
                    signal.signal(number, signal.SIG_DFL)

    def _handle(self, number: int, _: FrameType | None) -> None:
        """Pass a signal on where another holds the wake-up descriptor, or has let go of it; else it has arrived."""
        holds = signal.set_wakeup_fd(self._write_end, warn_on_full_buffer=False)
        if holds == self._write_end:
            return
        self._wakes = holds == -1
        if not self._wakes:
            signal.set_wakeup_fd(holds)
        with suppress(BlockingIOError):
            os.write(self._write_end, bytes([number]))
