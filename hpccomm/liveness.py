"""Whether a process of this host runs, is stopped or is gone, as /proc tells; it knows no ranks."""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

State = Literal["running", "stopped", "dead"]

_STATES: dict[str, State] = {"T": "stopped", "t": "stopped", "Z": "dead", "X": "dead", "x": "dead"}
_STATE, _START_TIME = 0, 19  # fields of /proc/<pid>/stat, counted from the one after the program's name


@dataclass(frozen=True)
class Process:
    """A process, told from later ones that get its number.

    Attributes:
        pid: Its number.
        start_time: When it started, in clock ticks since the host's start.
        space: Boot id and pid namespace: processes that have the same one see each other under these numbers.
    """

    pid: int
    start_time: int
    space: str

    @property
    def is_visible(self) -> bool:
        """Whether the calling process sees this one under its number."""
        return self.space == _own_space()

    @property
    def state(self) -> State:
        """How it is, as far as the calling process can see it; one that it cannot see is taken to run."""
        return process_state(self.pid, self.start_time) if self.is_visible else "running"


def this_process() -> Process:
    """Describe the calling process."""
    return Process(os.getpid(), start_time(os.getpid()), _own_space())


@cache
def _own_space() -> str:
    """Name where the calling process's numbers hold, which no process leaves."""
    boot_id, namespace = "", ""
    with suppress(OSError):
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - no path, a name
    return f"{boot_id} {namespace}"


def was_left_behind(parents: Collection[str]) -> bool:
    """Tell whether the parent has ended, so that the first process of all has taken this one in.

    Args:
        parents: Names of programs that may be the first process and this one's true parent.
    """
    with suppress(OSError):
        return os.getppid() == 1 and Path("/proc/1/comm").read_text().strip() not in parents
    return False


def start_time(pid: int) -> int:
    """Give the time at which a process started, in clock ticks since the host's start; 0 if there is none."""
    fields = _fields(pid)
    return int(fields[_START_TIME]) if fields else 0


def process_state(pid: int, start_time: int) -> State:
    """Tell how a process is; one that has taken over the number of another is not the other.

    Args:
        pid: The process's number, seen from this process's pid namespace.
        start_time: What `start_time` gave while the process lived.
    """
    fields = _fields(pid)
    if not fields or int(fields[_START_TIME]) != start_time:
        return "dead"
    return _STATES.get(fields[_STATE], "running")


def _fields(pid: int) -> list[str]:
    """Give the fields after the program's name, which may hold blanks and brackets."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
