"""End at Ctrl-C or TERM: at once, without a traceback, whatever the main thread is doing.

A thread waits for the signals, since the main thread may be inside a library's call for long, and writes the last line.
What else the user sees is the launcher's: Hydra passes INT and all output on; Open MPI sends TERM a quarter of a second
after Ctrl-C, passes nothing on from then and kills soon after. That is why rows are written as they are measured.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from threading import Thread

from hpccomm.bench.screen import Screen

_WRITE_S = 0.2  # for a row that is being written; less than launchers wait between TERM and KILL
QUIET_S = 2.0  # by which others outlive the rank that speaks, as the first to end takes the rest along


def watch(screen: Screen) -> None:
    """Watch for signals from now on; call it before any other thread starts, as threads inherit what is blocked."""
    signals = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) is not signal.SIG_IGN]
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    Thread(target=_wait, args=(screen, signals), name="hpccomm-bench-signals", daemon=True).start()


def _wait(screen: Screen, signals: Iterable[signal.Signals]) -> None:
    number = signal.sigwait(signals)
    is_free = screen.lock.acquire(timeout=_WRITE_S)
    if screen.ended or not screen.speaks:
        time.sleep(QUIET_S)
    elif is_free:  # otherwise nobody reads what this process writes
        screen.say([last_words(signal.Signals(number).name, screen.rows)])
    os._exit(128 + number)


def last_words(name: str, rows: int) -> str:
    """Say that a signal ended the run, and what is left of it."""
    left = f"{rows} row{'s are' if rows > 1 else ' is'} complete" if rows else "no row was measured"
    return f"interrupted by {name}; {left}"
