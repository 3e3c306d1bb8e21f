"""Have every check look at this machine, each under a deadline, before anything heavy or shaky is touched."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hpccomm.doctor.case import Sight
from hpccomm.doctor.checks import CHECKS, Check
from hpccomm.launch import Launcher, launcher_of
from hpccomm.topology import identify

T = TypeVar("T")


class Call(Generic[T]):
    """A call in a thread of its own, so that nobody has to wait for its end; one that hangs ends with the process."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: list[T] = []
        self._error = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value.append(self._call())
        except subprocess.TimeoutExpired as error:
            self._error = f"{' '.join(map(str, error.cmd))} did not end within {error.timeout:g} s"
        except Exception as error:
            self._error = f"{type(error).__name__}: {error}"

    def wait(self, seconds: float) -> tuple[T | None, str]:
        """Give what the call gave, or nothing and why, at the latest after so many seconds."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            return None, "it hangs"
        return (self._value[0], "") if self._value else (None, self._error)


@dataclass(frozen=True)
class Start:
    """How the launcher started this process, read so that nothing can be wrong with it.

    Attributes:
        launcher: The row of the launchers' table.
        rank: The rank by its word; None where it says nothing.
        size: The number of ranks by its word, 1 where it says nothing.
        local_rank: The rank within the host by its word; None where it says nothing.
        local_size: The number of ranks on this host by its word, 0 where it says nothing.
    """

    launcher: Launcher
    rank: int | None
    size: int
    local_rank: int | None
    local_size: int

    @property
    def leads_host(self) -> bool:
        """Whether this rank looks for all of its host; where nothing is known, every rank does."""
        return self.local_rank in (0, None)


def start(environ: Mapping[str, str]) -> Start:
    """Read the launcher's variables; what contradicts itself there is for the trial to find."""
    row = launcher_of(environ)
    rank, size, local = (_number(environ.get(name, "")) for name in (row.rank, row.size, row.local_rank))
    text = environ.get(row.local_size, "").partition("(")[0].partition(",")[0]  # Slurm's first host, at least
    return Start(row, rank, size or 1, local, _number(text) or 0)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 10 else None


def look(environ: Mapping[str, str], start: Start, deadline_s: float) -> Sight:
    """Make all checks that this rank has to make, side by side.

    Args:
        environ: The environment.
        start: How this process was started.
        deadline_s: Seconds for all of them.
    """
    due = [check for check in CHECKS if _is_due(check, start)]
    begun = time.monotonic()
    calls: Sequence[tuple[Check, Call[dict[str, Any]]]] = [(check, _call(check, environ)) for check in due]
    facts: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    for check, call in calls:
        value, why = call.wait(begun + deadline_s - time.monotonic())
        if value is None:
            failed[check.name] = f"{why} after {deadline_s:g} s" if why == "it hangs" else why
        else:
            facts[check.name] = value
    identity = identify(environ, None)
    return Sight(start.rank or 0, os.uname().nodename, identity.boot_id, start.local_size, facts, failed)


def _is_due(check: Check, start: Start) -> bool:
    return {"rank": True, "host": start.leads_host, "job": not start.rank, "trial": False}[check.scope]


def _call(check: Check, environ: Mapping[str, str]) -> Call[dict[str, Any]]:
    return Call(lambda: check.look(environ))
