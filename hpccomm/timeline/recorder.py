"""What a rank notes for a trace: spans by its own clock, and the bytes that it sends to each rank.

It knows neither torch nor MPI.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

OPERATIONS = "operations"
"""What runs on the track of what a group's users call."""

Row = tuple[int, str, float, float, dict[str, Any]]
"""A span that has ended: track, name, begin and end in seconds, and what else is known."""


@dataclass(slots=True)
class Span:
    """Something on its way.

    Attributes:
        track: Number of its track.
        name: What it is.
        about: What else is known of it.
        began_s: When it was begun, or asked for while it has not been.
        has_parts: Whether anything within it is noted apart.
    """

    track: int
    name: str
    about: dict[str, Any]
    began_s: float
    has_parts: bool = False


class Recorder:
    """The notes of one rank; any thread may write.

    Args:
        rank: This rank in the job.
        most: How many spans are kept, the first ones; bytes are counted in any case.

    Attributes:
        clock: Gives seconds; only differences count.
        rank: As given.
    """

    clock: Callable[[], float] = monotonic

    def __init__(self, rank: int, most: int) -> None:
        self.rank, self._most = rank, most
        self._tracks: dict[tuple[str, str], int] = {}
        self._spans: list[Row] = []
        self._left_out = 0
        self._messages, self._collectives = Counter[int](), Counter[int]()
        self._writing = threading.Lock()

    def track(self, path: str, what: str) -> int:
        """Give the number of a track.

        Args:
            path: The group, and the part of its backend: ``world/intra``.
            what: What runs there.
        """
        return self._tracks.setdefault((path, what), len(self._tracks))

    def end(self, span: Span) -> None:
        """Note that a span ends now."""
        ended_s = self.clock()
        if len(self._spans) < self._most:
            self._spans.append((span.track, span.name, span.began_s, ended_s, span.about))
        else:
            self._left_out += 1

    def count(self, sent: Mapping[int, int], *, by_messages: bool) -> None:
        """Count bytes sent to ranks of the job, by messages of hpccomm's own or inside a library's collective."""
        with self._writing:
            (self._messages if by_messages else self._collectives).update(sent)

    def as_data(self) -> dict[str, Any]:
        """Give all of it, as JSON takes it."""
        with self._writing:
            dests = sorted(self._messages.keys() | self._collectives.keys())
            return {
                "rank": self.rank,
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "tracks": list(self._tracks),
                "spans": list(self._spans),
                "left_out": self._left_out,
                "sent": [[dest, self._messages[dest], self._collectives[dest]] for dest in dests],
            }


@dataclass
class Recording:
    """What this process notes.

    Attributes:
        recorder: Takes the notes; None where no trace was asked for. Backends that are built meanwhile write to it.
    """

    recorder: Recorder | None = None


recording = Recording()
"""That of this process."""
