"""One attempt at an operation, of those that `failover` makes: for how long it is stepped, and why it is given up.

An attempt has its time from when it begins on this rank. It is given up where it fails, where it still waits after its
time, and where another rank has given it up. It knows neither what is attempted nor what comes next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator

from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.backends.context import Beside
from hpccomm.backends.jury import HEARD
from hpccomm.errors import HpccommError, OptionError, UnsupportedError


class _LateError(Exception):
    """The attempt still waits after its time."""


class Attempt:
    """One attempt of this rank.

    Args:
        number: Its number, alike on all ranks and higher than those before it.
        beside: What the ranks tell each other beside the group's traffic; None where they cannot.
        patience: Gives the seconds that it has, as they are now.
    """

    def __init__(self, number: int, beside: Beside | None, patience: Callable[[], float]) -> None:
        self._number, self._beside, self._patience = number, beside, patience
        self._began = time.monotonic()
        self._errors: list[Exception] = []

    def step(self, operation: Operation) -> Generator[str | LibraryCall, None, str]:
        """Step an operation to its end, and give what went wrong, or an empty text.

        Raises:
            HpccommError: The operation is refused on all ranks, before anything was sent.
        """
        failure = ""
        try:
            for waits in operation:
                if self._is_given_up:
                    return HEARD
                self._hold_time(waits)
                yield self._within(waits) if isinstance(waits, LibraryCall) else waits
                if self._errors:
                    self._hold_time(waits)
                    raise self._errors[0]
        except _LateError as late:
            failure = str(late)
        except Exception as error:
            if isinstance(error, (UnsupportedError, OptionError)) and error.everywhere:
                raise
            failure = error.summary if isinstance(error, HpccommError) else f"{type(error).__name__}: {error}"
        finally:
            operation.close()
        if failure and self._is_given_up:  # what may come of another rank's failure must not hide it
            return HEARD
        if failure and self._beside is not None:
            self._beside.give_up(self._number)
        return failure

    @property
    def _is_given_up(self) -> bool:
        return self._beside is not None and self._beside.given_up >= self._number

    def _hold_time(self, waits: str | LibraryCall) -> None:
        """Raise where an operation that has just been seen to wait has had its time.

        Whoever steps it may have been kept from that for longer, while everything arrived.
        """
        patience_s = self._patience()
        if time.monotonic() > self._began + patience_s:
            what = waits.what if isinstance(waits, LibraryCall) else waits
            raise _LateError(f"did not end in {patience_s:g} s, waiting for {what}")

    def _within(self, call: LibraryCall) -> LibraryCall:
        """Give a call no more time than the attempt that makes it, and keep its errors for the attempt to find."""

        def make(left_s: float) -> None:
            try:
                call.call(max(min(left_s, self._began + self._patience() - time.monotonic()), 0.001))
            except Exception as error:
                self._errors.append(error)

        return LibraryCall(make, call.what, call.bounded)
