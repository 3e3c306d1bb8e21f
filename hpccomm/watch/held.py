"""Calls of MPI outside any operation that wait for other ranks: noted, so that the watchdog holds their deadline.

They make channels between ranks. A rank that stops meanwhile holds the others there, and nothing ends such a call but
the end of the process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from hpccomm.errors import DeadlineError
from hpccomm.units import format_seconds

_OVERDUE_S = 0.5  # past the deadline, in which ranks that wait elsewhere may give up by an error
_STOPPED_S = 1.0  # most that counts between two looks: this process was stopped meanwhile


@dataclass(eq=False)
class HeldCall:
    """One call.

    Attributes:
        what: What it is made for, in messages.
        timeout_s: How long it may take, in seconds.
        whom: Says whom it waits for.
        begun_s: When it began, on the monotonic clock.
        waited_s: For how long it has been seen to wait, in seconds.
    """

    what: str
    timeout_s: float
    whom: Callable[[], str]
    begun_s: float
    waited_s: float = 0.0

    def error(self, hint: str) -> DeadlineError:
        """Say that it did not end in time.

        Args:
            hint: Where to read more, as a last sentence.
        """
        return DeadlineError(
            self.what,
            found=f"waited {format_seconds(self.timeout_s)} inside MPI for {self.whom()}",
            remedy=f"look for the rank that is missing; MPI holds this process, so it ends with the job. {hint}",
        )


class HeldCalls:
    """Those of this process that are under way."""

    def __init__(self) -> None:
        self._calls: list[HeldCall] = []
        self._looked = time.monotonic()

    @contextmanager
    def over(self, what: str, timeout_s: float, whom: Callable[[], str]) -> Iterator[None]:
        """Hold a deadline over a call; the arguments are those of `HeldCall`."""
        call = HeldCall(what, timeout_s, whom, time.monotonic())
        self._calls.append(call)
        try:
            yield
        finally:
            self._calls.remove(call)

    def overdue(self) -> HeldCall | None:
        """Look at all of them, again and again and from one thread, and give one that is past its deadline."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _STOPPED_S), now
        for call in list(self._calls):
            call.waited_s += min(passed, now - call.begun_s)
            if call.waited_s > call.timeout_s + _OVERDUE_S:
                return call
        return None


held = HeldCalls()
"""This process's."""
