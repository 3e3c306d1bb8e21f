"""The ranks that a world has lost, where it is to go on without them: learnt, told to the others, and kept.

Ranks of a host see each other's processes end, MPI reports what happens on other hosts, and whoever learns of it first
tells all others. From then on nothing of that world goes on: its groups are dead, its communicators revoked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from hpccomm.ulfm import tells_of_loss
from hpccomm.watch.channel import Channel
from hpccomm.watch.flight import Flight

_LOOK_S = 0.01
# Seconds for a death to become known, where MPI has said that there is one, and where there may be one
_KNOWN_S, _PERHAPS_S = 5.0, 1.0


class Losses:
    """What one rank knows.

    Args:
        channel: The side channel.
        flight: This rank's record.
        rank: This rank.
        describe: Names ranks, with their hosts and processes.
        failed: Gives the ranks that MPI takes for dead.
        revoke: Ends what is under way inside MPI.

    Attributes:
        ranks: The ranks that are lost.
    """

    def __init__(
        self,
        channel: Channel,
        flight: Flight,
        rank: int,
        *,
        describe: Callable[[Iterable[int]], str],
        failed: Callable[[], Iterable[int]],
        revoke: Callable[[], None],
    ) -> None:
        self._channel, self._flight, self._rank = channel, flight, rank
        self._describe, self._failed, self._revoke = describe, failed, revoke
        self.ranks: frozenset[int] = frozenset()
        self._learning = threading.Lock()
        self._closed = False

    def __str__(self) -> str:
        return f"lost {self._describe(sorted(self.ranks))}" if self.ranks else ""

    def learn(self, ranks: Iterable[int]) -> None:
        """Take in that ranks have died; from any thread."""
        with self._learning:
            if not self._closed:
                self._take_in(frozenset(ranks))

    def look(self) -> None:
        """Take in what MPI knows, and end what was begun since a rank was lost."""
        with self._learning:
            if not self._closed:
                self._take_in(frozenset(self._failed()))
            if self.ranks and not self._closed:
                self._revoke()

    def found(self, error: Exception | None = None) -> str:
        """Say who is lost; nothing where nobody is.

        Args:
            error: What may come of a death that will become known within a little while.
        """
        patience_s = 0.0 if error is None else _KNOWN_S if tells_of_loss(error) else _PERHAPS_S
        end = time.monotonic() + patience_s
        self.look()
        while not self.ranks and time.monotonic() < end:
            time.sleep(_LOOK_S)
            self.look()
        return str(self)

    def _take_in(self, ranks: frozenset[int]) -> None:
        if ranks <= self.ranks:
            return
        self.ranks |= ranks  # first, for those that ask why their operation has failed
        for log in list(self._flight.logs.values()):
            log.why_dead = log.why_dead or str(self)
        self._revoke()
        others = [rank for rank in range(len(self._channel.peers)) if rank not in {self._rank, *self.ranks}]
        with suppress(OSError, ValueError):
            self._channel.tell({"lost": sorted(self.ranks)}, others)

    def close(self) -> None:
        """Learn nothing any more, so that what is built next is left alone."""
        with self._learning:
            self._closed = True
