"""Learn at once of the end of other ranks' processes on this host. It judges nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress

from hpccomm.liveness import Process


class Deaths:
    """Descriptors that become readable when processes end.

    Args:
        processes: Every rank's process.
        rank: This rank, which is left out.
    """

    def __init__(self, processes: Sequence[Process], rank: int) -> None:
        self._ranks: dict[int, int] = {}
        for other, process in enumerate(processes):
            if other != rank and process.is_visible and hasattr(os, "pidfd_open"):
                with suppress(OSError):  # it has ended already, or the kernel is older than 5.3
                    self._ranks[os.pidfd_open(process.pid)] = other

    @property
    def descriptors(self) -> Mapping[int, int]:
        """The descriptors, with the rank of each."""
        return self._ranks

    def take(self, ready: Sequence[int]) -> list[int]:
        """Give the ranks whose descriptors are ready, and watch them no more."""
        ranks = []
        for descriptor in ready:
            rank = self._ranks.pop(descriptor, None)  # another thread may take it at the same time
            if rank is not None:
                os.close(descriptor)
                ranks.append(rank)
        return ranks

    def close(self) -> None:
        """Watch no process any more."""
        self.take(list(self._ranks))
