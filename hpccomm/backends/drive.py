"""Step one operation to its end against its deadline, and wait well meanwhile.

This is the direct path of a synchronous call: the caller's own thread steps. It knows no backend.
"""

from __future__ import annotations

import os
import time

from hpccomm.backends.base import Operation

# Polls made at once before the processor is offered to others, and before sleeping between polls.
_EAGER_POLLS = 10_000
_POLLS_BEFORE_SLEEP = 20_000
_SHORTEST_SLEEP_S = 20e-6
_LONGEST_SLEEP_S = 1e-3


class OverdueError(Exception):
    """An operation was given up at its deadline.

    Args:
        waited_for: What it waited for, in the backend's words.
        waited_s: For how long, in seconds.
    """

    def __init__(self, waited_for: str, waited_s: float) -> None:
        super().__init__(f"waited {waited_s:.1f} s for {waited_for}")


def drive(operation: Operation, timeout_s: float, *, crowded: bool) -> None:
    """Step an operation until it ends.

    Args:
        operation: The operation, stepped or not.
        timeout_s: Its deadline from now on, in seconds.
        crowded: Whether more ranks than cores share this host, so that waiting must not hold a core.

    Raises:
        OverdueError: The deadline has passed; the operation is closed.
    """
    start = time.monotonic()
    for polls, waited_for in enumerate(operation):
        waited_s = time.monotonic() - start
        if waited_s > timeout_s:
            operation.close()
            raise OverdueError(waited_for, waited_s)
        if crowded or polls > _EAGER_POLLS:
            _yield_core(polls)


def _yield_core(polls: int) -> None:
    if polls < _POLLS_BEFORE_SLEEP:
        os.sched_yield()
    else:
        time.sleep(min(_LONGEST_SLEEP_S, _SHORTEST_SLEEP_S * (polls / _POLLS_BEFORE_SLEEP)))
