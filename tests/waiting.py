"""Wait for what others do."""

from __future__ import annotations

import time
from collections.abc import Callable

POLL_S = 0.05


def comes_true(is_so: Callable[[], bool], seconds: float) -> bool:
    """Ask again and again, and tell whether it came to be so in time."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
