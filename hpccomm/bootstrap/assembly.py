"""The ranks of a world that may die: how those that are left agree, and who they are.

MPI's agreement is the one call that ends alike on all of them, whoever dies meanwhile. It knows no world.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any

from hpccomm.errors import DeadlineError
from hpccomm.polling import pause
from hpccomm.ulfm import revoke, tells_of_loss
from hpccomm.watch.held import held

# Agreements given up, with the memory that MPI may still touch
_ABANDONED: list[tuple[Any, ...]] = []


class Assembly:
    """The ranks of one communicator.

    Args:
        communicator: An mpi4py communicator over Open MPI with fault tolerance; it may be revoked.
        timeout_s: How long to wait for all ranks that are left.

    Attributes:
        bereaved: Whether the last agreement ended with the word that a rank has died; alike on all that are left.
    """

    def __init__(self, communicator: Any, timeout_s: float) -> None:
        self._communicator, self._timeout_s = communicator, timeout_s
        self._dissolved = self.bereaved = False

    def agree(self, well: bool) -> bool:
        """Tell whether nobody has died and all say that they are well, alike on all ranks that are left; collective.

        After a "no" there is nothing left to do but `survivors`.

        Raises:
            DeadlineError: Ranks that have not died did not come in time.
        """
        flag = array("i", [well])
        request = self._communicator.Iagree(flag)
        try:
            self.bereaved = not self._ends(request)
        except BaseException:
            _ABANDONED.append((self._communicator, request, flag))
            raise
        self._dissolved = self.bereaved or not flag[0]
        return not self._dissolved

    def survivors(self, whom: Callable[[], str]) -> Any:
        """Give a communicator of the ranks that are left, in their order; collective, also where some have agreed.

        Where a rank stops while MPI is at it, the job ends at the deadline.

        Args:
            whom: Says whom this rank waits for.

        Raises:
            DeadlineError: Ranks that have not died did not come in time.
        """
        if not self._dissolved:
            self.agree(False)
        revoke(self._communicator)
        with held.over("shrink the world", self._timeout_s, whom):
            return self._communicator.Shrink()

    def _ends(self, request: Any) -> bool:
        """Wait for a request's end, and tell whether it has ended without somebody's death."""
        begun = time.monotonic()
        try:
            while not request.Test():
                waited = time.monotonic() - begun
                if waited > self._timeout_s:
                    raise DeadlineError(
                        "agree among the ranks that are left",
                        found=f"some that have not died did not come within {self._timeout_s:g} s",
                        remedy="call World.agree and World.shrink on all ranks that are left, or end the job",
                    )
                pause(waited)
        except Exception as error:
            if tells_of_loss(error):
                return False
            raise
        return True
