"""One line on standard error that says what goes on, overwritten by the next and by the table's rows."""

from __future__ import annotations

import sys
import time

_INTERVAL_S = 0.25
_ERASE = "\x1b[K"


class Progress:
    """The line, or nothing.

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
