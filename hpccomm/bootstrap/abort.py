"""End the whole job when one rank fails: traceback first, tagged with the rank, then MPI_Abort.

An interpreter that ends with an error would finalise MPI and wait there for ranks that never come. It knows MPI only
through the abort function that it is given.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

import torch

from hpccomm.errors import HpccommError
from hpccomm.watch.coroner import GRACE_S
from hpccomm.watch.ending import flush, leave

# Seconds for which the other ranks wait while rank 0 prints an error that all of them have.
_QUIET_S = 2.0
# Seconds after which a rank that is still there prints it where rank 0 should have taken it along; each a little later
# than the one before, so that the first takes the rest along. Ranks may start seconds apart on a busy host.
_PATIENT_S = 10.0
_NEXT_S = 0.1
_LONGEST_S = 20.0
# Seconds between writing an error and aborting, so that the launcher forwards it, and that a rank whose death was the
# first cause has ended by then.
_FORWARD_S = GRACE_S + 0.1


_OURS = tuple(f"{folder}{os.sep}" for folder in (Path(__file__).parents[1], Path(torch.__file__).parent))


def _is_users(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_OURS) and not frame.filename.startswith("<frozen ")


def _users_part(stack: traceback.StackSummary) -> traceback.StackSummary:
    return traceback.StackSummary.from_list([frame for frame in stack if _is_users(frame)])


class JobGuard:
    """Ends the job on this rank's failure.

    Attributes:
        rank: This rank, as well as it is known.
        size: The number of ranks, or 0 while unknown.
        abort: Ends all ranks with an exit status, or None where nothing does.
        rank_0_reports: Whether an error of all ranks is left to rank 0 for good. Otherwise a rank that still lives
            after a while reports it too: under mpirun the first rank that exits takes rank 0 along.
        on_end: Called when this rank ends, its error written.
        failed: Whether this rank is ending with an error, so that nothing may wait for other ranks any more.
    """

    def __init__(self) -> None:
        self.rank = 0
        self.size = 0
        self.abort: Callable[[int], Any] | None = None
        self.rank_0_reports = False
        self.on_end: Callable[[], None] = lambda: None
        self.failed = False
        self.status = 0
        self._pid: int | None = None
        self._before: Callable[[type[BaseException], BaseException, TracebackType | None], Any] = sys.excepthook

    def install(self, rank: int) -> None:
        """Take over uncaught exceptions and non-zero exits of this process."""
        self.rank = rank
        if self._pid is None:
            self._pid, self._before = os.getpid(), sys.excepthook
            sys.excepthook = self._on_exception
            sys.exit = self.exit

    def connect(self, rank: int, size: int, abort: Callable[[int], Any]) -> None:
        """Take what MPI says, and what ends all ranks."""
        self.rank, self.size, self.abort = rank, size, abort

    @property
    def is_here(self) -> bool:
        """Whether this process is the rank, not a child that was forked from it."""
        return os.getpid() == self._pid

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not self.is_here:
            self._before(kind, error, trace)
            os._exit(1)  # an interpreter that goes down here would finalise its parent's MPI
        if not self._left_to_rank_0(error):
            self.report(kind, error, trace)
        self.end(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def _left_to_rank_0(self, error: BaseException) -> bool:
        if not (isinstance(error, HpccommError) and error.everywhere and self.rank != 0):
            return False
        patient = min(_PATIENT_S + self.rank * _NEXT_S, _LONGEST_S)
        time.sleep(_QUIET_S if self.rank_0_reports else patient)
        return self.rank_0_reports

    def report(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Write a traceback to stderr, every line tagged with rank and host.

        Of hpccomm's own errors only the user's frames are shown: what went wrong stands in the text. A cause that the
        error itself tells is left out.
        """
        shown = traceback.TracebackException(kind, error, trace)
        if isinstance(error, HpccommError):
            shown.stack, cause = _users_part(shown.stack), error.__cause__
            if cause.found in error.found if isinstance(cause, HpccommError) else error.everywhere:
                shown.__cause__ = shown.__context__ = None
            elif shown.__cause__ is not None and isinstance(cause, HpccommError):
                shown.__cause__.stack = _users_part(shown.__cause__.stack)
        self.say("".join(shown.format()))

    def say(self, text: str) -> None:
        """Write lines to stderr, tagged with rank and host, as far as that can be done."""
        of = f"/{self.size}" if self.size else ""
        tag = f"[rank {self.rank}{of} on {socket.gethostname()}] "
        flush()
        stream = sys.__stderr__ or sys.stderr  # torch's own hook holds sys.stderr back until this one returns
        with suppress(OSError, ValueError, AttributeError):  # gone, closed, or None as it was from the start
            stream.write("".join(f"{tag}{line}\n" for line in text.splitlines()))
            stream.flush()

    def end(self, status: int) -> None:
        """End all ranks with an exit status, where MPI or its launcher does that; else return."""
        self.failed, self.status = True, status
        self.on_end()
        if self.abort is not None and self.size != 1:
            flush()
            time.sleep(_FORWARD_S)
            self.abort(status)
            leave(status)  # MPI_Abort may return before the launcher has ended this process

    def exit(self, status: Any = None) -> NoReturn:
        """Do what `sys.exit` does; a failure that nothing catches ends the job."""
        if self.is_here and not (status is None or status == 0):
            raise _GuardedExit(self, status)
        raise SystemExit(status)

    def end_as(self, status: Any) -> None:
        """End all ranks as an exit with this status ends a process: with its number, or with its text and 1."""
        if self.size > 1 and (self.abort is not None or isinstance(status, int)):  # else Python writes the text
            self.say(f"exit status {status}, which ends the job" if isinstance(status, int) else str(status))
        self.end(status & 0xFF or 1 if isinstance(status, int) else 1)


class _GuardedExit(SystemExit):
    """A non-zero exit that ends the job if nothing catches it.

    Python shows an uncaught SystemExit to no hook. But it destroys the exception with no Python frame left, before the
    interpreter starts to go down; one that was caught dies inside some frame, or later.
    """

    def __init__(self, guard: JobGuard, status: Any) -> None:
        super().__init__(status)
        self._guard = guard

    def __del__(self) -> None:
        uncaught = sys._getframe().f_back is None and not sys.is_finalizing()
        if uncaught and self._guard.is_here and threading.current_thread() is threading.main_thread():
            self._guard.end_as(self.code)


_GuardedExit.__qualname__, _GuardedExit.__module__ = "SystemExit", "builtins"  # what users' tracebacks show

guard = JobGuard()
