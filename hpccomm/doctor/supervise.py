"""Start a rank's trial and hear what it tells, with a deadline for each of its steps."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from signal import Signals
from typing import IO, Any

from hpccomm.bench.screen import Progress
from hpccomm.doctor.case import Sight
from hpccomm.doctor.trial import GRACE_S

_START_S = 60.0  # until the child says its first word
_END_S = 60.0  # from the word to leave to the end, for which MPI waits for all ranks
_LATE_S = 15.0  # by which other ranks wait longer than the first one, whose word must be out before they end
_KEPT = 4000  # characters of standard error
_SHOWN = 3  # of its lines, from either end


@dataclass
class Heard:
    """What the trial told.

    Attributes:
        rank: This rank, as MPI says; None before the ranks are joined.
        size: The number of ranks likewise.
        libraries: What torch and the MPI library are.
        gathered: Whether the first rank knows what all ranks saw.
        sights: What all ranks saw; on the first rank alone.
        topology: Who is where; empty without a world.
        backend: The world's backend.
        addresses: Each rank's address.
        times: Microseconds of an all_reduce by backend.
        errors: What failed.
        ended: Whether it came to its end.
    """

    rank: int | None = None
    size: int | None = None
    libraries: dict[str, Any] = field(default_factory=dict)
    gathered: bool = False
    sights: list[dict[str, Any]] = field(default_factory=list)
    topology: str = ""
    backend: str = ""
    addresses: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
    errors: list[dict[str, str]] = field(default_factory=list)
    ended: bool = False


class Supervisor:
    """One rank's trial.

    Args:
        sight: What this rank saw.
        environ: The trial's environment.
        timeout_s: Seconds for each thing that the ranks do together.
        progress: Where its steps are shown.
        is_first: Whether this is taken to be the first rank.
    """

    def __init__(
        self, sight: Sight, environ: Mapping[str, str], *, timeout_s: float, progress: Progress, is_first: bool
    ) -> None:
        self.heard = Heard()
        self._progress = progress
        self._timeout_s = timeout_s
        self._late_s = 0.0 if is_first else _LATE_S
        self._stage, self._limit_s = "start", _START_S
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._said = ""
        self._child = subprocess.Popen(
            [sys.executable, "-m", "hpccomm.doctor.trial"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environ,
            text=True,
            errors="replace",
            close_fds=False,  # the launcher's line to the MPI library is an open file
        )
        readers = ((self._child.stdout, self._lines.put), (self._child.stderr, self._keep))
        self._readers = [threading.Thread(target=_read, args=each, daemon=True) for each in readers]
        for reader in self._readers:
            reader.start()
        self._order(json.dumps({"sight": asdict(sight), "timeout_s": timeout_s}))

    def _order(self, line: str) -> None:
        assert self._child.stdin is not None
        with suppress(OSError):
            self._child.stdin.write(line + "\n")
            self._child.stdin.flush()

    def _keep(self, text: str) -> None:
        self._said = (self._said + text)[-_KEPT:]

    @property
    def said(self) -> str:
        """The first and last lines of what the libraries wrote, without hpccomm's own words on who is late."""
        lines = [line for line in self._said.splitlines() if line.strip() and not line.startswith("hpccomm: ")]
        return "\n".join(lines if len(lines) <= 2 * _SHOWN else [*lines[:_SHOWN], "...", *lines[-_SHOWN:]])

    def listen(self) -> None:
        """Hear the trial out, until its end, its death, or the deadline of a step."""
        deadline = time.monotonic() + self._limit_s + self._late_s
        while not self.heard.ended:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                self._fail(f"the step {self._stage} hangs", f"no end after {self._limit_s:g} s")
                return
            if not line:
                self._fail(f"the step {self._stage} crashed", self._death())
                return
            self._take(json.loads(line))
            deadline = time.monotonic() + self._limit_s + self._late_s

    def _take(self, message: dict[str, Any]) -> None:
        heard = self.heard
        if "stage" in message:
            self._stage, self._limit_s = message["stage"], message["limit_s"]
            self._progress.show(f"{self._stage} ...")
        elif "error" in message:
            heard.errors.append(message["error"])
        elif "end" in message:
            heard.ended = True
        elif "times" in message:
            heard.times.update(message["times"])
        else:
            for name, value in message.items():
                setattr(heard, name, value)

    def _death(self) -> str:
        status = self._child.wait()
        return f"it ended by {Signals(-status).name}" if status < 0 else f"it ended with status {status}"

    def _fail(self, what: str, how: str) -> None:
        for reader in self._readers[1:]:
            reader.join(0.5)
        said = f"; it wrote:\n{self.said}" if self.said else ""
        remedy = "the other errors and warnings may be the cause, also those of other ranks on standard error"
        self.heard.errors.append({"stage": self._stage, "what": what, "found": how + said, "remedy": remedy})

    def interrupt(self, how: str) -> None:
        """Take note that the job was ended from outside."""
        self._fail(f"the job was ended in the step {self._stage}", how)

    def release(self, *, speaks: bool) -> None:
        """Let the trial end; after a failure not before the first rank has had the time to speak.

        Open MPI's mpirun ends all ranks with the first that ends without having started MPI, while others do, and
        forwards nothing that they say of it. What all ranks know before MPI starts takes no time: each ends by itself.
        """
        alone = any(not error.get("everywhere") for error in self.heard.errors)
        if not speaks and alone and not self.heard.gathered:
            time.sleep(self._timeout_s + GRACE_S + _LATE_S)
        elif not speaks and self.heard.errors and self.heard.rank is not None:
            time.sleep(_LATE_S)
        with suppress(OSError, ValueError):
            assert self._child.stdin is not None
            self._child.stdin.close()
        try:
            self._child.wait(_END_S if self.heard.ended else 0)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()


def _read(stream: IO[str], take: Any) -> None:
    for line in stream:
        take(line)
    take("")
