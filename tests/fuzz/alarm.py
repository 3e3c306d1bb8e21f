"""End a case that hangs: say how to play it again, show all stacks, then end the process."""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time

_LATER_S = 10.0  # where no Python runs any more
_POLL_S = 0.5


class Alarm:
    """A thread that looks at the clock.

    Args:
        rank: This rank.
        slow_s: Seconds after which it shows what a case does.
        end_s: Seconds after which it ends the process.
    """

    def __init__(self, rank: int, *, slow_s: float, end_s: float) -> None:
        self._rank, self._slow_s, self._end_s = rank, slow_s, end_s
        self._now: tuple[str, float] | None = None
        threading.Thread(target=self._watch, name="fuzz-alarm", daemon=True).start()

    def begin(self, text: str) -> None:
        """Start the clock of a case that the text describes."""
        faulthandler.dump_traceback_later(self._end_s + _LATER_S, exit=True)
        self._now = text, time.monotonic()

    def end(self) -> None:
        """Stop the clock."""
        self._now = None
        faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        told = None
        while True:
            time.sleep(_POLL_S)
            now = self._now
            if now is None:
                continue
            waited = time.monotonic() - now[1]
            if waited > self._slow_s and told is not now:
                told = now
                self._say(f"has not ended for {waited:.0f} s: {now[0]}", now is self._now)
            if waited > self._end_s and now is self._now:
                self._say(f"hangs: {now[0]}", True)
                time.sleep(_POLL_S)
                os._exit(1)

    def _say(self, text: str, stacks: bool) -> None:
        print(f"[rank {self._rank}] {text}", file=sys.stderr, flush=True)
        if stacks:
            faulthandler.dump_traceback(all_threads=True)
