"""How to wait by polling and leave the cores to those that are waited for."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

# For how long a core is only offered. Linux lets processes that offer theirs in turns (sched_yield) keep all others
# from the cores for seconds: with 4 ranks on 2 cores, Linux 6.18, 5 s at a time.
_YIELD_S = 10e-3
_LONGEST_SLEEP_S = 2e-3


def pause(waited_s: float) -> None:
    """Let others run after a poll that found nothing: offer the core, later sleep for a hundredth of the time waited.

    Args:
        waited_s: Seconds waited so far.
    """
    if waited_s < _YIELD_S:
        os.sched_yield()
    else:
        time.sleep(min(waited_s / 100, _LONGEST_SLEEP_S))


def until(holds: Callable[[], bool]) -> None:
    """Poll until something holds.

    Args:
        holds: Tells whether it does.
    """
    begun = time.monotonic()
    while not holds():
        pause(time.monotonic() - begun)
