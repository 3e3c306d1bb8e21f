"""What rank 0 shows: lines on standard output, at once, and the progress line; one writer at a time."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from threading import RLock
from typing import TextIO

from hpccomm.bench.text import plain

_INTERVAL_S = 0.25
_ERASE = "\x1b[K"


class Progress:
    """One line on standard error that says what goes on, overwritten by the next and by the table's rows; or nothing.

    It ends with the cursor at its start: the launcher forwards standard output and error apart, so a row of the
    table may come before the line is erased, and then overwrites it.

    Args:
        enabled: Whether anything is written at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._shown_at = -_INTERVAL_S
        self._shows = False

    def show(self, text: str) -> None:
        """Replace the line at once."""
        if self._enabled:
            self._write(f"\r{text[:78]}{_ERASE}\r")
            self._shown_at, self._shows = time.monotonic(), True

    def step(self, text: str) -> None:
        """Replace the line unless it was replaced a moment ago."""
        if self._enabled and time.monotonic() - self._shown_at >= _INTERVAL_S:
            self.show(text)

    def clear(self) -> None:
        """Erase the line."""
        if self._shows:
            self._write(f"\r{_ERASE}")
            self._shows = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class Screen:
    """The user's screen.

    Args:
        speaks: Whether this rank writes at all; a guess until the ranks are connected.
        progress: The progress line; enabled only on a rank that speaks.
        bold: Whether bold text shows there.

    Attributes:
        lock: Held while something is written, a row to screen and files at once, so that an end comes between rows.
        rows: How many rows have been written.
        ended: Whether all is written, and the process is about to end.
    """

    def __init__(self, progress: Progress, *, speaks: bool, bold: bool) -> None:
        self.progress, self.speaks, self.bold = progress, speaks, bold
        self.lock = RLock()
        self.rows = 0
        self.ended = False

    def say(self, lines: Sequence[str], *, file: TextIO | None = None) -> None:
        """Print lines at once: an interrupted launcher may forward nothing that comes later."""
        with self.lock:
            self.progress.clear()
            if self.speaks and lines:
                text = "\n".join(lines)
                print(text if self.bold else plain(text), file=file, flush=True)
