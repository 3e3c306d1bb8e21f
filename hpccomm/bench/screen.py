"""What rank 0 shows: lines on standard output, at once, and the progress line; one writer at a time."""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import TextIO

from hpccomm.bench.progress import Progress
from hpccomm.bench.text import strong


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
                print("\n".join(lines), file=file, flush=True)

    def strong(self, text: str) -> str:
        """Mark text as bold, where that shows."""
        return strong(text, self.bold)
