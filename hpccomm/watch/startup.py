"""Watch the times in which MPI starts and ends, when the ranks cannot speak to each other.

MPI waits there for all ranks, under no deadline. On this host the others are known by their launcher: they are its
children and carry a variable with their rank. A rank that begins to wait takes a name that the others can see.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccomm.claim import claim
from hpccomm.liveness import process_state, start_time
from hpccomm.watch.patrol import say

_LOOK_S = 0.5  # between two looks at all processes


class StartUp:
    """The watchdog's round while MPI starts.

    Args:
        variable: The launcher's variable with the rank.
        rank: This rank.
        timeout_s: Deadline of the start in seconds.
        quiet_s: Seconds after which it says who is missing; at most a third of the deadline holds.
        end: Ends the process, with what is known of those that are missing.
    """

    phase = "start"
    descriptors: Sequence[int] = ()

    def __init__(
        self, variable: str, rank: int, *, timeout_s: float, quiet_s: float, end: Callable[[float, str], Any]
    ) -> None:
        self._variable, self._rank, self._timeout_s, self._end = variable, rank, timeout_s, end
        self._start = time.monotonic()
        self._speaks_after = min(quiet_s, timeout_s / 3)
        self._mark = f"hpccomm/{self.phase}/{os.getppid()}/"
        self._own = claim(f"{self._mark}{rank}")

    def walk(self, ready: Sequence[int]) -> None:
        """Say who is missing after the quiet time, and end the process at the deadline."""
        waited = time.monotonic() - self._start
        if waited > self._timeout_s:
            self._end(waited, self.missing())
        elif waited > self._speaks_after:
            self._speaks_after = 2 * waited
            words = self.missing()
            if self._rank == min(self._came(), default=self._rank):
                say(f"rank {self._rank} waited {waited:.0f} s for MPI to {self.phase}: {words}")

    def close(self) -> None:
        """Give the name back."""
        if self._own is not None:
            self._own.close()

    def missing(self) -> str:
        """Say what is known of the ranks of this host that hold MPI up."""
        came, found = self._came(), []
        for rank, pid, state in self._states():
            if state != "running":
                found.append(f"rank {rank} (process {pid}) {'is stopped' if state == 'stopped' else 'has ended'}")
            elif rank not in came:
                found.append(f"rank {rank} (process {pid}) has not come")
        return "; ".join(found) or "all ranks of this host are in it"

    def _states(self) -> list[tuple[int, int, str]]:
        """Give each rank of this host, its process and how that is."""
        return [(rank, pid, process_state(pid, start_time(pid))) for rank, pid in sorted(self._siblings().items())]

    def _came(self) -> set[int]:
        """Give the ranks of this host that have begun to wait."""
        names = (line.rpartition(f"@{self._mark}")[2] for line in Path("/proc/net/unix").read_text().splitlines())
        return {int(name) for name in names if name.isdecimal()}

    def _siblings(self) -> dict[int, int]:
        """Give the processes of the ranks of this host, by rank."""
        variable, parent = f"{self._variable}=".encode(), str(os.getppid())
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError, IndexError):
                if (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1] == parent:
                    settings = (entry / "environ").read_bytes().split(b"\0")
                    rank = next((one[len(variable) :] for one in settings if one.startswith(variable)), None)
                    if rank is not None:
                        found[int(rank)] = int(entry.name)
        return found


class WindingUp(StartUp):
    """The watchdog's round while MPI ends. Ranks come there when they like; only one that is stopped is missing.

    The times count from when one is.
    """

    phase = "end"
    _looked_s = 0.0

    def walk(self, ready: Sequence[int]) -> None:
        """Say who is stopped, and end the process where it is for long."""
        now = time.monotonic()
        if now - self._looked_s > _LOOK_S:
            self._looked_s = now
            if not self.missing():
                self._start = now
        super().walk(ready)

    def missing(self) -> str:
        """Say which ranks of this host are stopped."""
        return "; ".join(
            f"rank {rank} (process {pid}) is stopped" for rank, pid, state in self._states() if state == "stopped"
        )
