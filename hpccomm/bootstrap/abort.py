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
from types import TracebackType
from typing import Any, NoReturn

from hpccomm.errors import HpccommError

# Seconds for which the other ranks wait while one prints an error that all of them have.
_QUIET_S = 2.0
# Seconds between writing an error and aborting, so that the launcher forwards it.
_FORWARD_S = 0.3


class JobGuard:
    """Ends the job on this rank's failure.

    Attributes:
        rank: This rank, as well as it is known.
        size: The number of ranks, or 0 while unknown.
        abort: Ends all ranks with an exit status, or None while MPI is not up.
    """

    def __init__(self) -> None:
        self.rank = 0
        self.size = 0
        self.abort: Callable[[int], Any] | None = None
        self._before: Any = None
        self._exit_before: Any = None

    def install(self, rank: int) -> None:
        """Take over uncaught exceptions and non-zero exits of this process."""
        self.rank = rank
        if self._before is None:
            self._before, self._exit_before = sys.excepthook, sys.exit
            sys.excepthook = self._on_exception
            sys.exit = self._on_exit

    def _on_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, HpccommError) and error.everywhere and self.rank != 0:
            time.sleep(_QUIET_S)
        else:
            self.report(kind, error, trace)
        self.end(130 if issubclass(kind, KeyboardInterrupt) else 1)

    def report(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Write a traceback to stderr, every line tagged with rank and host."""
        of = f"/{self.size}" if self.size else ""
        tag = f"[rank {self.rank}{of} on {socket.gethostname()}] "
        lines = "".join(traceback.format_exception(kind, error, trace)).splitlines()
        sys.stdout.flush()
        stream = sys.__stderr__ or sys.stderr  # torch's own hook holds sys.stderr back until this one returns
        stream.write("".join(f"{tag}{line}\n" for line in lines))
        stream.flush()

    def end(self, status: int) -> None:
        """End all ranks with an exit status, where MPI is up; else return."""
        if self.abort is not None and self.size > 1:
            sys.stdout.flush()
            time.sleep(_FORWARD_S)
            self.abort(status)

    def _on_exit(self, status: Any = None) -> NoReturn:
        failed = not (status is None or status == 0)
        raise _GuardedExit(self, status) if failed else SystemExit(status)

    def exit_status(self, error: SystemExit) -> int:
        """Give the exit status of a SystemExit, writing its text as Python would."""
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr, flush=True)
        return 1


class _GuardedExit(SystemExit):
    """A non-zero exit that ends the job if nothing catches it.

    Python shows an uncaught SystemExit to no hook. But it destroys the exception with no Python frame left, while
    one that was caught dies inside some frame.
    """

    def __init__(self, guard: JobGuard, status: Any) -> None:
        super().__init__(status)
        self._guard, self._pid = guard, os.getpid()

    def __del__(self) -> None:
        here = os.getpid() == self._pid and threading.current_thread() is threading.main_thread()
        if here and sys._getframe().f_back is None:
            self._guard.end(self.code if isinstance(self.code, int) else 1)


guard = JobGuard()
