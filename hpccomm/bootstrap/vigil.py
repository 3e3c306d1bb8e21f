"""Keep watch over this rank: the watchdog from `enter` on, with the side channel and the other ranks from `boot` on.

The only place that joins `hpccomm.watch` with the ways in which a job ends. It holds no group.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hpccomm.backends.context import revoke_all
from hpccomm.bootstrap.abort import guard
from hpccomm.errors import DeadlineError
from hpccomm.exchange import Exchange
from hpccomm.launch import Launcher
from hpccomm.ulfm import failed
from hpccomm.watch.channel import Channel, Peer
from hpccomm.watch.coroner import ALL, summon, tell
from hpccomm.watch.deaths import Deaths
from hpccomm.watch.ending import Ending, leave
from hpccomm.watch.flight import Entry, GroupLog, flight
from hpccomm.watch.held import HeldCall
from hpccomm.watch.launched import launched
from hpccomm.watch.losses import Losses
from hpccomm.watch.missing import Inquiry, Place
from hpccomm.watch.patrol import Patrol
from hpccomm.watch.signals import SignalPipe
from hpccomm.watch.startup import StartUp
from hpccomm.watch.watchdog import Watchdog

_END_S = 2  # from the abort of all ranks to the certain end of this one


class Vigil:
    """This process's watch; one a process."""

    def __init__(self) -> None:
        self._watchdog: Watchdog | None = None
        self._patrol: Patrol | None = None
        self._channel: Channel | None = None
        self._inquiry: Inquiry | None = None
        self._rank, self._size = 0, 1
        self._job = ""
        self._folder: Path | None = None

    def begin(self, launcher: Launcher) -> None:
        """Start the watchdog, once, and have it told of this rank's failure.

        Args:
            launcher: What started this process, which must not outlive it.
        """
        guard.on_end = self.on_end
        if self._watchdog is None:
            launched.by(launcher)
            signals = SignalPipe([signal.SIGTERM, signal.SIGUSR2])
            self._watchdog = Watchdog(signals, self._on_signal, self._end_held)
            launched.leave_to_caller()

    @contextmanager
    def over_mpi(
        self, phase: type[StartUp], launcher: Launcher, environ: Mapping[str, str], *, timeout_s: float, quiet_s: float
    ) -> Iterator[None]:
        """Hold a deadline over MPI's start or end, which wait for all ranks, and say who is missing there."""
        rank = environ.get(launcher.rank, "")
        if self._watchdog is None or not rank.isdecimal():
            yield
            return

        def end(waited: float, missing: str) -> None:
            self._end_mpi(phase, waited, missing)

        watch = phase(launcher.rank, int(rank), timeout_s=timeout_s, quiet_s=quiet_s, end=end)
        self._watchdog.guard(watch)
        try:
            yield
        finally:
            self._watchdog.guard(None)
            watch.close()

    @contextmanager
    def over_end(self, timeout_s: float) -> Iterator[None]:
        """End this process where what is last done in it takes too long."""
        if self._watchdog is not None:
            self._watchdog.guard(Ending(timeout_s, lambda: guard.status))
        yield
        if self._watchdog is not None:
            self._watchdog.guard(None)

    def join(
        self, exchange: Exchange, address: str, places: Sequence[Place], *, quiet_s: float, folder: str, coroner: bool
    ) -> None:
        """Open the side channel to all ranks; collective.

        Args:
            exchange: Reaches all ranks.
            address: This host's address that all others reach.
            places: Where every rank lives.
            quiet_s: Seconds after which a waiting operation is spoken of.
            folder: Where flight records go; empty for one of this job's own under the temporary folder.
            coroner: Whether a process of its own on each host names ranks that end without a word.
        """
        token = exchange.all_gather(secrets.token_hex(16) if exchange.rank == 0 else "", "gather of a token")[0]
        channel = Channel(address, token)
        self._rank, self._size = exchange.rank, exchange.size
        if coroner and self._size > 1:
            self._summon_coroner(channel, places)  # first, so that no rank that goes on from here ends unheard
        channel.peers = exchange.all_gather(Peer(address, channel.port), "gather of addresses")
        self._channel = channel
        self._inquiry = Inquiry(channel, flight, places, exchange.rank)
        self._inquiry.names_the_dead = not coroner
        self._job = token[:12]
        self._folder = Path(folder) if folder else Path(tempfile.gettempdir(), f"hpccomm-flight-{self._job}")
        deaths = Deaths([place.process for place in places], exchange.rank)
        self._patrol = Patrol(self._inquiry, deaths, quiet_s=quiet_s, end=self._end_stuck)
        if self._watchdog is not None and exchange.size > 1:
            self._watchdog.guard(self._patrol)

    def survive(self, communicator: Any) -> None:
        """Have the ranks of a communicator, all that were joined, go on without those that die."""
        if self._inquiry is not None:
            self._inquiry.losses = Losses(
                self._inquiry.channel,
                flight,
                self._rank,
                describe=self._inquiry.named,
                failed=lambda: failed(communicator),
                revoke=lambda: revoke_all(communicator),
            )

    def _summon_coroner(self, channel: Channel, places: Sequence[Place]) -> None:
        here = {rank: place for rank, place in enumerate(places) if place.process.is_visible}
        if min(here) == self._rank:
            pids = {rank: place.process.pid for rank, place in here.items()}
            summon(channel.local_name, here[self._rank].host, pids)

    def leave(self, *, tells: bool = True) -> None:
        """Take leave of the other ranks; the watchdog goes on with the launcher and the signals.

        Args:
            tells: Whether the others are told that this rank ends.
        """
        if tells:
            self.on_end(for_all=False)
        patrol, self._patrol, self._channel, self._inquiry = self._patrol, None, None, None
        if self._watchdog is not None:
            self._watchdog.guard(None)
        if patrol is not None:
            patrol.close()

    def blame(self, log: GroupLog, entry: Entry) -> str:
        """Find out who holds an operation up, in words; nothing where that cannot be known."""
        inquiry = self._inquiry
        with suppress(Exception):  # what is wrong already must not be hidden by what goes wrong here
            return str(inquiry.find(log, entry)) if inquiry is not None and len(log.ranks) > 1 else ""
        return ""

    def lost(self, error: Exception | None = None) -> str:
        """Say which ranks are lost, given an error that may come of it; nothing where none is or that ends the job."""
        losses = self._losses
        return "" if losses is None else losses.found(error)

    @property
    def lost_ranks(self) -> frozenset[int]:
        """The ranks that are lost, where the job goes on without them."""
        return frozenset() if self._losses is None else self._losses.ranks

    @property
    def _losses(self) -> Losses | None:
        return None if self._inquiry is None else self._inquiry.losses

    @property
    def inquiry(self) -> Inquiry | None:
        """What asks and answers for this rank, or None before the others are known."""
        return self._inquiry

    def on_death(self, log: GroupLog, everywhere: bool) -> None:
        """Tell a group's other ranks that this one has given it up, unless all do, and write the flight record."""
        channel = self._channel
        if channel is not None and not everywhere:
            others = [rank for rank in log.ranks if rank != self._rank]
            with suppress(OSError, ValueError):
                channel.tell(
                    {
                        "group": log.key,
                        "why": f"rank {self._rank}: {log.why_dead}",
                        "overdue": log.overdue,
                        "died_at": log.died_at,
                    },
                    others,
                )
        if self._size > 1:
            self.write_flight(f"group {log.name} died: {log.why_dead}")

    def write_flight(self, why: str, folder: Path | None = None) -> Path | None:
        """Write this rank's flight record.

        Args:
            why: What makes it write.
            folder: Where to; None for the job's own folder.

        Returns:
            The file, or None where it cannot be written or nothing was begun.
        """
        folder = folder or self._folder
        with suppress(OSError):
            if folder is not None:
                return flight.write(folder, rank=self._rank, size=self._size, job=self._job, why=why)
        return None

    @property
    def hint(self) -> str:
        """Where the flight records are, for messages."""
        return "" if self._folder is None else f"python -m hpccomm.doctor --flight {self._folder} compares the ranks"

    def on_end(self, *, for_all: bool = True) -> None:
        """Tell the other ranks that this one ends, so that they need not wonder why.

        Args:
            for_all: Whether the others are ended with it, so that nobody need name them.
        """
        channel = self._channel
        if channel is not None and self._size > 1:
            others = [rank for rank in range(self._size) if rank != self._rank]
            with suppress(OSError, ValueError):
                tell(channel.local_name, self._rank, *([ALL] if for_all else []))
                channel.tell({"leaves": self._rank, "for_all": for_all}, others)

    def _on_signal(self, number: int) -> None:
        file = self.write_flight(signal.Signals(number).name)
        if number == signal.SIGTERM:
            if self._losses is None:
                self.on_end()
            _end_by(number)  # where the others go on, they see that it is lost
        waiting = [(log, entry) for log in list(flight.logs.values()) for entry in log.waiting()]
        told = [f"waits in {entry} of group {log.name} over {log.expression}" for log, entry in waiting]
        written = [f"flight record in {file}"] if file is not None else []
        guard.say(f"SIGUSR2: {'; '.join([*(told or ['waits for nobody']), *written])}")

    def _end_mpi(self, phase: type[StartUp], waited: float, missing: str) -> None:
        """End the job: MPI has not started or ended in time."""
        error = DeadlineError(
            f"{phase.phase} MPI",
            found=f"waited {waited:.1f} s for all ranks: {missing}",
            remedy="see whether these ranks were started, and their output for why they stopped",
        )
        self._end_with(error)

    def _end_with(self, error: DeadlineError) -> None:
        guard.report(type(error), error, None)
        _end_for_certain()
        guard.end(1)
        leave(1)

    def _end_held(self, call: HeldCall) -> None:
        self.write_flight("a call passed its deadline inside a library")
        self._end_with(call.error(self.hint))

    def _end_stuck(self, log: GroupLog, entry: Entry) -> None:
        """End the job: an operation is past its deadline inside a library, where nothing else ends it."""
        waited = time.monotonic() - (entry.since_s or 0.0)
        error = DeadlineError(
            f"{entry} of group {log.name} over {log.expression}",
            found=f"waited {waited:.1f} s inside {entry.waiting_for}: {self.blame(log, entry)}",
            remedy="look for the rank that is missing; the library holds this process, so it ends with the job. "
            + self.hint,
        )
        self.write_flight("an operation passed its deadline inside a library")
        self._end_with(error)


def _end_for_certain() -> None:
    """Have the kernel end this process soon, whatever holds the interpreter."""
    with suppress(OSError, RuntimeError, ValueError):
        faulthandler.dump_traceback_later(_END_S, exit=True, file=sys.__stderr__ or sys.stderr)


def _end_by(number: int) -> None:
    """Die of a signal, as if it had never been handled; from any thread."""
    ctypes.CDLL(None).signal(number, None)
    os.kill(os.getpid(), number)


vigil = Vigil()
