"""How long a job takes to come up: until its ranks are joined, and until the backends' groups are made."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

from hpccomm.exchange import Exchange

PARTS = ("imports", "init", "groups")
"""What a start is made of; `StartUp` says what each is."""


@dataclass(frozen=True)
class StartUp:
    """Seconds until a job was ready to measure.

    Attributes:
        of_ranks: Of each rank: from the process's start to the call of `hpccomm.init`, which is the interpreter and
            what it imports; of `hpccomm.init`; of making the groups of all backends that are measured.
    """

    of_ranks: tuple[tuple[float, ...], ...]

    @property
    def slowest(self) -> dict[str, float]:
        """Each part, of the rank that takes the longest for it."""
        return dict(zip(PARTS, map(max, zip(*self.of_ranks, strict=True)), strict=True))

    def entries(self) -> dict[str, object]:
        """Give it as JSON takes it."""
        named = {f"{part}_s": seconds for part, seconds in self.slowest.items()}
        return {"start_up": named, "start_up_of_ranks": self.of_ranks}

    def __str__(self) -> str:
        return ", ".join(f"{seconds:.2f} s {part}" for part, seconds in self.slowest.items()) + " (slowest rank)"


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
        return StartUp(tuple(exchange.all_gather((self._imports_s, joined - begun, grouped - joined))))
