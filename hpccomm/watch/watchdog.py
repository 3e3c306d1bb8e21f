"""The watchdog: a thread that sees what the rank's other threads cannot while they wait.

It answers the other ranks, says after a quiet time who is missing, ends the process where an operation has passed its
deadline inside a library's call or the launcher is gone, and acts on signals at once, by their wake-up descriptor.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hpccomm.watch.channel import Channel
from hpccomm.watch.flight import Entry, Flight, GroupLog
from hpccomm.watch.missing import Inquiry
from hpccomm.watch.signals import SignalPipe

_TICK_S = 0.25
_OVERDUE_S = 0.5
"""How long past its deadline an operation may stay inside a library before the process is ended."""


class Watchdog:
    """One a process; starts with the parent and the signals alone, and gets the other ranks once they are known.

    Args:
        flight: This process's record.
        signals: Where signals arrive.
        on_signal: Called in the watchdog's thread with each signal's number.
        on_orphan: Called when the launcher is gone; None where there is none to watch.
    """

    def __init__(
        self,
        flight: Flight,
        signals: SignalPipe,
        on_signal: Callable[[int], None],
        on_orphan: Callable[[], None] | None,
    ) -> None:
        self._flight, self._signals, self._on_signal, self._on_orphan = flight, signals, on_signal, on_orphan
        self._parent = os.getppid()
        self._patrol: Patrol | None = None
        self._pid = os.getpid()
        self._stop = False
        self._thread = threading.Thread(target=self._run, name="hpccomm-watchdog", daemon=True)
        self._thread.start()

    def guard(self, patrol: Patrol | None) -> None:
        """Watch over operations too, or no longer."""
        self._patrol = patrol
        self._signals.nudge()

    def stop(self) -> None:
        """End the thread, unless it is the thread that asks."""
        self._stop = True
        self._signals.nudge()
        if threading.current_thread() is not self._thread and os.getpid() == self._pid:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop:
            patrol = self._patrol
            watched = [self._signals.descriptor] + ([patrol.channel.socket] if patrol else [])
            with suppress(OSError, ValueError):  # a channel that was closed meanwhile
                select.select(watched, [], [], _TICK_S)
            for number in self._signals.read():
                self._on_signal(number)
            if self._on_orphan is not None and os.getppid() != self._parent:
                self._on_orphan()
            if patrol is not None and patrol is self._patrol:
                patrol.walk()


class Patrol:
    """One round of the watchdog over the operations under way.

    Args:
        flight: This process's record.
        channel: The side channel.
        inquiry: Finds out who is missing.
        rank: This rank in the job.
        quiet_s: Seconds after which a waiting operation is spoken of.
        end: Ends the process with an error of an operation that nothing else ends.
    """

    def __init__(
        self,
        flight: Flight,
        channel: Channel,
        inquiry: Inquiry,
        *,
        rank: int,
        quiet_s: float,
        end: Callable[[GroupLog, Entry], Any],
    ) -> None:
        self.channel = channel
        self._flight, self._inquiry, self._rank, self._quiet_s, self._end = flight, inquiry, rank, quiet_s, end
        self._told: dict[Entry, float] = {}

    def walk(self) -> None:
        """Serve the channel, then look at every operation under way."""
        with suppress(OSError, ValueError):
            self._inquiry.serve()
        under_way = [(log, entry) for log in list(self._flight.logs.values()) for entry in log.waiting()]
        self._told = {entry: told for entry, told in self._told.items() if entry.ended_s is None}
        for log, entry in under_way:
            self._look(log, entry)

    def _look(self, log: GroupLog, entry: Entry) -> None:
        now = time.monotonic()
        since, deadline = entry.since_s, entry.deadline_s
        if since is None or deadline is None:
            return
        if entry.in_library and now > deadline + _OVERDUE_S:
            self._end(log, entry)
        elif now - since > self._told.get(entry, min(self._quiet_s, (deadline - since) / 3)):
            self._told[entry] = 2 * (now - since)
            self._say(log, entry, now - since)

    def _say(self, log: GroupLog, entry: Entry, waited: float) -> None:
        """Say who is missing, if this is the lowest rank that waits there."""
        found = self._inquiry.find(log, entry)
        if entry.ended_s is not None or found.waiting[0] != self._rank:
            return
        others = len(found.waiting) - 1
        who = f"rank {self._rank}{f' and {others} more' if others else ''}"
        stream = sys.__stderr__ or sys.stderr
        stream.write(
            f"hpccomm: {who} waited {waited:.0f} s in {entry} of group {log.name} over {log.expression}: {found}\n"
        )
        stream.flush()
