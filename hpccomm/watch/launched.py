"""End this process when its launcher is gone: from a program's first moment on, before it imports libraries.

A program of hpccomm's own looks in a thread until the watchdog does. Importing torch alone takes seconds.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import NoReturn

from hpccomm.launch import ALONE, Launcher
from hpccomm.liveness import was_left_behind
from hpccomm.watch.ending import leave
from hpccomm.watch.patrol import say

_LOOK_S = 0.25


class Launched:
    """What this process knows of its launcher, which it must not outlive; one a process."""

    def __init__(self) -> None:
        self._parent: int | None = None
        self._others_look = threading.Event()

    def by(self, launcher: Launcher) -> None:
        """Take the parent for the launcher from now on, once; end here where it is gone already."""
        if launcher is ALONE or self._parent is not None:
            return
        if launcher.parents and was_left_behind(launcher.parents):
            _end()
        self._parent = os.getppid()

    def watch(self, launcher: Launcher) -> None:
        """Look after it in a thread, until `leave_to_caller`."""
        self.by(launcher)
        if self._parent is not None:
            threading.Thread(target=self._run, name="hpccomm-launcher", daemon=True).start()

    def leave_to_caller(self) -> None:
        """End the thread, if there is one: from here on `look` is called often."""
        self._others_look.set()

    def look(self) -> None:
        """End this process where the launcher is gone."""
        if self._parent not in (None, os.getppid()):
            _end()

    def _run(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are for the other threads
        while not self._others_look.wait(_LOOK_S):
            self.look()


def _end() -> NoReturn:
    say("the launcher is gone, so this rank ends too")
    leave(1)


launched = Launched()
