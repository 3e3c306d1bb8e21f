"""The watchdog's round: serve the side channel, take in who has ended, and look at every operation under way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from hpccomm.watch.deaths import Deaths
from hpccomm.watch.flight import Entry, GroupLog
from hpccomm.watch.missing import Inquiry

_OVERDUE_S = 0.5
"""How long past its deadline an operation may stay inside a library before the process is ended."""


class Patrol:
    """The rounds of one rank in one world.

    Args:
        inquiry: Finds out who is missing.
        deaths: Tells which processes have ended.
        quiet_s: Seconds after which a waiting operation is spoken of; at most a third of its deadline holds.
        end: Ends the process because of an operation that nothing else ends.
    """

    def __init__(
        self, inquiry: Inquiry, deaths: Deaths, *, quiet_s: float, end: Callable[[GroupLog, Entry], Any]
    ) -> None:
        self._inquiry, self._deaths, self._quiet_s, self._end = inquiry, deaths, quiet_s, end
        self._told: dict[Entry, float] = {}

    @property
    def descriptors(self) -> list[int]:
        """What there is to wait for."""
        return [self._inquiry.channel.socket.fileno(), *self._deaths.descriptors]

    def walk(self, ready: Sequence[int]) -> None:
        """Go one round.

        Args:
            ready: Those of `descriptors` that can be read.
        """
        self._inquiry.serve()
        ended = self._deaths.take(ready)
        told = self._inquiry.vanished(ended) if ended else ""
        if told:
            say(told)
        if self._inquiry.losses is not None:
            self._inquiry.losses.look()
        under_way = [(log, entry) for log in list(self._inquiry.flight.logs.values()) for entry in log.waiting()]
        self._told = {entry: told for entry, told in self._told.items() if entry.ended_s is None}
        for log, entry in under_way:
            self._look(log, entry)

    def close(self) -> None:
        """Close the side channel and watch no process any more."""
        if self._inquiry.losses is not None:
            self._inquiry.losses.close()
        self._deaths.close()
        self._inquiry.channel.close()

    def _look(self, log: GroupLog, entry: Entry) -> None:
        now = time.monotonic()
        since, deadline = entry.since_s, entry.deadline_s
        if since is None or deadline is None:
            return
        if entry.in_library and now > deadline + _OVERDUE_S:
            self._end(log, entry)
        elif now - since > self._told.get(entry, min(self._quiet_s, (deadline - since) / 3)):
            self._told[entry] = 2 * (now - since)
            self._name_missing(log, entry, now - since)

    def _name_missing(self, log: GroupLog, entry: Entry, waited: float) -> None:
        """Say who is missing, if this is the lowest rank that waits there."""
        found = self._inquiry.find(log, entry)
        if entry.ended_s is None and found.waiting[0] == self._inquiry.rank:
            others = len(found.waiting) - 1
            who = f"rank {self._inquiry.rank}{f' and {others} more' if others else ''}"
            where = f"{entry} of group {log.name} over {log.expression}"
            say(f"{who} waited {waited:.0f} s in {where}: {found}")


def say(text: str) -> None:
    """Write a line to stderr, past what redirects it."""
    stream = sys.__stderr__ or sys.stderr
    with suppress(OSError, ValueError):
        stream.write(f"hpccomm: {text}\n")
        stream.flush()
