"""The trace that HPCCOMM_TRACE asks for: begun when the ranks are connected, written by rank 0 when they part.

The ranks' notes are joined only where the program ends well on all ranks; how one failed is the flight record's.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from hpccomm.bootstrap.abort import guard
from hpccomm.errors import HpccommError, OptionError
from hpccomm.exchange import Exchange, together
from hpccomm.timeline import chrome, meeting
from hpccomm.timeline.clock import Reading
from hpccomm.timeline.recorder import Recorder, recording
from hpccomm.topology.grouping import count
from hpccomm.watch.patrol import say
from hpccomm.whole import whole

VARIABLE = "HPCCOMM_TRACE"
MOST_SPANS = 1_000_000
"""Spans of all ranks in one trace; viewers take about as many."""


@dataclass
class _Trace:
    """A trace under way on one rank.

    Attributes:
        recorder: This rank's notes.
        ranks: How many ranks there are.
        place: Where they meet.
        server: Rank 0's end of that; None elsewhere.
        path: The file; meant on rank 0 alone.
        timeout_s: How long ranks wait for each other.
        first: This rank's clock at the beginning; None on rank 0.
        began_s: Rank 0's own then.
    """

    recorder: Recorder
    ranks: int
    place: meeting.Place
    server: socket.socket | None
    path: Path
    timeout_s: float
    first: Reading | None = None
    began_s: float = 0.0

    def compare(self) -> None:
        """Compare clocks for the first time; collective."""
        if self.server is None:
            self.first = meeting.visit(self.place, self.recorder.clock, lambda _: b"", self.timeout_s)
        else:
            list(self._received(self.server))
        self.began_s = self.recorder.clock()

    def finish(self) -> None:
        """Compare clocks once more and write the file; collective.

        Raises:
            OSError: The ranks do not meet, or rank 0 cannot write.
        """
        if self.server is None:
            meeting.visit(self.place, self.recorder.clock, self._notes, self.timeout_s)
            return
        with whole(self.path) as beside, beside.open("w", encoding="utf-8") as file:
            chrome.write(file, self._parts(self.server), self.ranks, self.began_s)
        say(f"trace of {count(self.ranks, 'rank')} in {self.path}, for ui.perfetto.dev and python -m hpccomm.trace")

    def close(self) -> None:
        """Be met no more."""
        if self.server is not None:
            self.server.close()

    def _parts(self, server: socket.socket) -> Iterator[chrome.Part]:
        yield {**self.recorder.as_data(), "readings": []}
        yield from map(json.loads, self._received(server))

    def _received(self, server: socket.socket) -> Iterator[bytes]:
        return meeting.receive(server, self.place.token, self.ranks - 1, self.recorder.clock, self.timeout_s)

    def _notes(self, last: Reading) -> bytes:
        assert self.first is not None
        return json.dumps({**self.recorder.as_data(), "readings": chrome.entries([self.first, last])}).encode()


@dataclass
class _Process:
    """What this process traces.

    Attributes:
        trace: The trace under way.
        files: How many it has begun.
        pid: Whose they are, not those of children.
    """

    trace: _Trace | None = None
    files: int = 0
    pid: int = 0


_process = _Process()


def refuse(environ: Mapping[str, str]) -> None:
    """Refuse a trace of a world that is to outlive its ranks.

    Raises:
        OptionError: One is asked for.
    """
    if environ.get(VARIABLE):
        raise OptionError(
            f"write a trace to {environ[VARIABLE]} with on_lost_rank='shrink'",
            found="a trace needs every rank to its end",
            remedy=f"unset {VARIABLE}, or leave on_lost_rank out",
            everywhere=True,
        )


def begin(asked: str, exchange: Exchange, address: str, timeout_s: float) -> None:
    """Begin a trace; collective.

    Args:
        asked: A file, or a folder for a file of this run's own; a program's second trace gets a number.
        exchange: Reaches all ranks.
        address: This host's address that all others reach.
        timeout_s: How long ranks wait for each other.

    Raises:
        OptionError: On all ranks: rank 0 cannot write there.
        HpccommError: On all ranks: they do not meet.
    """
    end(well=False)
    is_first, _process.pid = exchange.rank == 0, os.getpid()
    path = together(exchange, lambda: _file(asked) if is_first else Path(asked), "look at the trace's file")
    listens = meeting.listen(address, secrets.token_bytes(16), exchange.size - 1) if is_first else None
    place = exchange.all_gather(None if listens is None else listens[1], "gather of where the trace is")[0]
    assert place is not None
    server = None if listens is None else listens[0]
    trace = _Trace(Recorder(exchange.rank, MOST_SPANS // exchange.size), exchange.size, place, server, path, timeout_s)
    try:
        together(exchange, trace.compare, "comparison of clocks")
    except HpccommError:
        trace.close()
        raise
    _process.trace, recording.recorder = trace, trace.recorder
    if not _process.files:
        atexit.register(end)
    _process.files += 1


def end(*, well: bool = True) -> None:
    """Write the trace, where one is under way; collective where all is well, else it is given up."""
    trace, _process.trace, recording.recorder = _process.trace, None, None
    if trace is None or _process.pid != os.getpid():
        return
    try:
        if well and not guard.failed:
            trace.finish()
    except OSError as error:
        if trace.server is not None:
            say(f"no trace in {trace.path}: {error}")
    finally:
        trace.close()


def _file(asked: str) -> Path:
    """Give the file to write.

    Raises:
        OptionError: Nothing can be written there.
    """
    path = Path(asked).absolute()  # the program may change its folder
    try:
        if asked.endswith(os.sep):
            path.mkdir(exist_ok=True)
        if path.is_dir():
            path /= f"trace-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.json"
        if _process.files:
            path = path.with_stem(f"{path.stem}-{_process.files + 1}")
        with TemporaryFile(dir=path.parent):
            return path
    except (OSError, ValueError) as error:
        raise OptionError(
            f"write a trace to {asked}",
            found=str(error),
            remedy="name a file or folder that rank 0 may write to, with --trace or HPCCOMM_TRACE",
        ) from error
