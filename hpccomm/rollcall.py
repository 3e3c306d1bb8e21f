"""Wait for all ranks of a communicator under a deadline, and say which of them have not come.

Ranks that wait long tell each other in which wait they are; who keeps silent is missing. It is given an mpi4py
communicator, but imports no mpi4py.
"""

from __future__ import annotations

import math
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

from hpccomm.errors import DeadlineError
from hpccomm.polling import pause
from hpccomm.units import format_seconds

Describe = Callable[[int], str]

QUIET_S = 10.0

_TAG = 32767  # the largest that every MPI library grants
_LOOK_S = 0.02  # between looks for messages
_ANSWER_S = 0.5  # in which ranks that wait have answered
_STOPPED_S = 1.0  # between two polls: this process was stopped, and the time does not count
_SPIN_S = 50e-6  # after which waiting lets others have the core
_NAMED = 8  # ranks in a text

# What MPI may still be at work on: communicators and requests, which hold their buffers.
_ABANDONED: list[tuple[Any, ...]] = []


class _Message(NamedTuple):
    """What a rank tells all others: in which wait it is, whether it asks who else waits, and that it gave up."""

    rank: int
    number: int
    asks: bool
    verdict: tuple[DeadlineError, int] | None


class _Sign(NamedTuple):
    """The last that was heard of a rank: in which wait it was, and when it was heard."""

    number: int
    at: float


def plain(rank: int) -> str:
    """Name a rank of which nothing is known."""
    return f"rank {rank}"


def named(ranks: Sequence[int], describe: Describe) -> str:
    """List the first of some ranks, and say how many more there are."""
    rest = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
    return ", ".join(map(describe, ranks[:_NAMED])) + rest


class RollCall:
    """Waits on one communicator; all ranks come to the same waits in the same order.

    Args:
        communicator: An mpi4py communicator, whose tag 32767 nothing else uses.
        timeout_s: Deadline of each wait in seconds.
        quiet_s: Seconds of waiting after which it says who is missing; at most a third of the deadline holds.

    Attributes:
        describe: Names a rank, with what is known of its process.
        usable: False from a failure on: MPI may be at work on the communicator for ever.
    """

    def __init__(self, communicator: Any, *, timeout_s: float, quiet_s: float = QUIET_S) -> None:
        self.describe: Describe = plain
        self.usable = True
        self._communicator = communicator
        self._rank: int = communicator.rank
        self._size: int = communicator.size
        self.set_times(timeout_s, quiet_s)
        self._given_up: DeadlineError | None = None
        self._goes_on_alone = False
        self._number = 0
        self._signs = [_Sign(0, -math.inf)] * self._size
        self._told = _Sign(0, -math.inf)
        self._asked = False
        self._sent = 0
        self._received = [0] * self._size
        self._sends: list[Any] = []

    def set_times(self, timeout_s: float, quiet_s: float) -> None:
        """Set the deadline and the quiet time of waits from now on."""
        self._timeout_s, self._quiet_s = timeout_s, min(quiet_s, timeout_s / 3)
        self._answer_s = min(_ANSWER_S, self._quiet_s / 2)

    def meet(self, call: str) -> None:
        """Wait for all ranks, and receive every message of earlier waits and of this one; collective.

        Raises:
            DeadlineError: As of `complete`.
        """
        self._gather_sent(call)
        sent = self._gather_sent(call)
        self._wait(lambda: self._has_received(sent), call)

    def complete(self, post: Callable[[], Any], call: str) -> None:
        """Post a request that needs all ranks, and wait for its end; collective.

        Args:
            post: Gives the request. It and its buffers are kept after a failure.
            call: What it is for, in messages.

        Raises:
            DeadlineError: It has not ended at the deadline, here or on another rank, or a former one did not. The
                text is that of the rank that gave up first. On the lowest rank that waited it is not marked
                `everywhere`, so that this one reports for all.
        """
        if self._given_up is not None:
            raise copy(self._given_up)
        self._wait(post().Test, call)

    def arrive(self, call: str) -> bool:
        """Wait for all ranks, and tell whether they came in time; collective.

        A rank that gives up goes on alone, without a word to the others, and counts for them as one that came.
        """
        self._goes_on_alone = True
        try:
            self.complete(self._communicator.Ibarrier, call)
        except DeadlineError:
            return False
        finally:
            self._goes_on_alone = False
        return True

    def _wait(self, done: Callable[[], bool], call: str) -> None:
        self._number += 1
        try:
            self._poll(done, call)
        except BaseException:
            self.usable = False
            _ABANDONED.append((self._communicator, done, self._sends))
            raise

    def close(self) -> None:
        """Free the communicator, unless it was given up; receive what has come before."""
        if self.usable:
            while self._receive() is not None:
                pass
            _ABANDONED.extend((send,) for send in self._sends if not send.Test())
            self._communicator.Free()

    def _poll(self, done: Callable[[], bool], call: str) -> None:
        report_s = self._quiet_s
        begun = looked = before = time.monotonic()
        while not done():
            now = time.monotonic()
            if now - before > _STOPPED_S:
                begun += now - before
            if now - looked > _LOOK_S:
                report_s = self._look(call, now - begun, report_s)
                looked = now
            before = now
            if now - begun > _SPIN_S:
                pause(now - begun)

    def _look(self, call: str, waited_s: float, report_s: float) -> float:
        """Hear the others, and do what is due after waiting so long; give the time of the next report."""
        self._listen()
        if waited_s >= self._timeout_s:
            self._give_up(call)
        if waited_s >= report_s:
            self._report(call, waited_s)
            return 2 * report_s
        asks = waited_s >= min(report_s, self._timeout_s) - self._answer_s
        if asks or self._asked:
            self._tell_once(asks=asks)
        return report_s

    def _listen(self) -> None:
        while (message := self._receive()) is not None:
            if message.verdict is not None:
                self._fail(*message.verdict)
            self._signs[message.rank] = _Sign(message.number, time.monotonic())
            self._asked |= message.asks

    def _receive(self) -> _Message | None:
        if not self._communicator.iprobe(tag=_TAG):
            return None
        message: _Message = self._communicator.recv(tag=_TAG)
        self._received[message.rank] += 1
        return message

    def _tell_once(self, *, asks: bool) -> None:
        """Tell the others where this rank waits, unless it has just done so."""
        now = time.monotonic()
        if self._told.number < self._number or now - self._told.at > self._answer_s:
            self._told = _Sign(self._number, now)
            self._tell(_Message(self._rank, self._number, asks, None))
        self._asked = False

    def _tell(self, message: _Message) -> None:
        self._sends = [send for send in self._sends if not send.Test()]
        others = (rank for rank in range(self._size) if rank != self._rank)
        self._sends += [self._communicator.isend(message, dest=rank, tag=_TAG) for rank in others]
        self._sent += 1

    def _missing(self) -> list[int]:
        """Find the ranks that did not answer, neither from this wait nor from a later one."""
        recently = time.monotonic() - 2 * self._answer_s - 5 * _LOOK_S
        oldest = _Sign(self._number, recently)
        return [rank for rank, sign in enumerate(self._signs) if rank != self._rank and sign < oldest]

    def _report(self, call: str, waited_s: float) -> None:
        missing = self._missing()
        if self._rank == self._lowest(missing):
            print(f"hpccomm: {self._finding(missing, waited_s)} ({call})", file=sys.stderr, flush=True)

    def _give_up(self, call: str) -> None:
        missing = self._missing()
        error = DeadlineError(
            f"{call} of {self._size} ranks",
            found=self._finding(missing, self._timeout_s),
            remedy="see the output and the host of what is missing; where it is only slow, give a longer timeout_s",
        )
        verdict = error, self._lowest(missing)
        if not self._goes_on_alone:
            self._tell(_Message(self._rank, self._number, False, verdict))
        self._fail(*verdict)

    def _fail(self, error: DeadlineError, lowest: int) -> None:
        error.everywhere = self._rank != lowest
        self._given_up = error
        raise copy(error)

    def _lowest(self, missing: Sequence[int]) -> int:
        return min(set(range(self._size)).difference(missing))

    def _finding(self, missing: Sequence[int], waited_s: float) -> str:
        others = self._size - len(missing) - 1
        waiting = f" and {others} other{'s' * (others > 1)} have" if others else " has"
        whom = named(missing, self.describe) if missing else "the MPI library, as all ranks have come"
        return f"{self.describe(self._lowest(missing))}{waiting} waited {format_seconds(waited_s)} for {whom}"

    def _gather_sent(self, call: str) -> array[int]:
        """Give how many messages each rank had sent to each other one when it came."""
        sent = array("q", [0]) * self._size
        self.complete(lambda: self._communicator.Iallgather(array("q", [self._sent]), sent), call)
        return sent

    def _has_received(self, sent: Sequence[int]) -> bool:
        self._listen()
        others = (rank for rank in range(self._size) if rank != self._rank)
        return all(self._received[rank] >= sent[rank] for rank in others)
