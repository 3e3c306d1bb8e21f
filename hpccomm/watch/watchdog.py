"""The watchdog: a thread that sees what the rank's other threads cannot while they wait.

It answers the other ranks, says after a quiet time who is missing, ends the process where an operation or another call
has passed its deadline inside a library or the launcher is gone, and acts on signals at once, by their wake-up
descriptor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from hpccomm.watch.channel import await_any
from hpccomm.watch.held import HeldCall, held
from hpccomm.watch.launched import launched
from hpccomm.watch.signals import SignalPipe

_TICK_S = 0.25


class Round(Protocol):
    """What the watchdog does again and again."""

    @property
    def descriptors(self) -> Sequence[int]:
        """What there is to wait for."""
        ...

    def walk(self, ready: Sequence[int]) -> None:
        """Go one round; `ready` are those of `descriptors` that can be read."""
        ...


class Watchdog:
    """One a process; starts with the launcher and the signals alone, and gets the other ranks once they are known.

    Args:
        signals: Where signals arrive.
        on_signal: Called in the watchdog's thread with each signal's number.
        on_overdue: Called with a call outside operations that is past its deadline.
    """

    def __init__(
        self,
        signals: SignalPipe,
        on_signal: Callable[[int], None],
        on_overdue: Callable[[HeldCall], None],
    ) -> None:
        self._signals, self._on_signal, self._on_overdue = signals, on_signal, on_overdue
        self._round: Round | None = None
        self._thread = threading.Thread(target=self._run, name="hpccomm-watchdog", daemon=True)
        self._thread.start()

    def guard(self, round_: Round | None) -> None:
        """Go these rounds from now on, or none."""
        self._round = round_
        self._signals.nudge()

    def _run(self) -> None:
        while True:
            going = self._round
            ready: list[int] = []
            with suppress(OSError, ValueError):  # what was closed meanwhile
                ready = await_any([self._signals.descriptor, *(going.descriptors if going else ())], _TICK_S)
            if going is not None and going is self._round:
                with suppress(OSError, ValueError):  # no descriptor left, or one that was closed meanwhile
                    going.walk(ready)
            if (overdue := held.overdue()) is not None:
                self._on_overdue(overdue)
            for number in self._signals.read():
                self._on_signal(number)
            launched.look()
