"""Watch the last that is done in a process, which a library may never end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NoReturn


class Ending:
    """The watchdog's round that ends the process.

    Args:
        timeout_s: Seconds from now on.
        status: Gives the exit status.
    """

    descriptors: Sequence[int] = ()

    def __init__(self, timeout_s: float, status: Callable[[], int]) -> None:
        self._end = time.monotonic() + timeout_s
        self._status = status

    def walk(self, ready: Sequence[int]) -> None:
        """End it where its time is over."""
        if time.monotonic() > self._end:
            leave(self._status())


def flush() -> None:
    """Send off what the process has printed, as far as that can be done."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or None as it was from the start
        sys.stdout.flush()


def leave(status: int) -> NoReturn:
    """End the process at once, with what it has printed."""
    flush()
    os._exit(status)
