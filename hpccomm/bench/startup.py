"""How long a job takes to come up: until its ranks are joined, and until the backends' groups are made."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from hpccomm.exchange import Exchange


@dataclass(frozen=True)
class StartUp:
    """Seconds, each of the slowest rank.

    Attributes:
        imports_s: From the process's start to the call of `hpccomm.init`: the interpreter and what it imports.
        init_s: Of `hpccomm.init`.
        groups_s: Of making the groups of all backends that are measured.
    """

    imports_s: float
    init_s: float
    groups_s: float

    def __str__(self) -> str:
        return f"{self.imports_s:.2f} s imports, {self.init_s:.2f} s init, {self.groups_s:.2f} s groups (slowest rank)"


class Watch:
    """Notes one rank's times on the way; made right before `hpccomm.init`."""

    def __init__(self) -> None:
        self._imports_s = max(0.0, time.time() - psutil.Process(os.getpid()).create_time())
        self._marks = [time.perf_counter()]

    def mark(self) -> None:
        """Note the end of init, then of making groups."""
        self._marks.append(time.perf_counter())

    def read(self, exchange: Exchange) -> StartUp:
        """Give the times over all ranks; collective."""
        begun, joined, grouped = self._marks
        own = (self._imports_s, joined - begun, grouped - joined)
        return StartUp(*(max(of_ranks) for of_ranks in zip(*exchange.all_gather(own), strict=True)))
