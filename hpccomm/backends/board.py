"""A board: a few words of every rank of a host, in memory that all of them map, by which they meet without messages.

Operation number q of a group begins with `arrive` and ends with `leave`; both wait, by polling, until all ranks have
come as far. Between the two a rank's words and the memory that they point at stay as they are, so that the others may
read them. A rank that gives an operation up says so: whoever has read from it learns that before it hands a result out.

Stores must be seen in the order in which they are made, which x86 does by itself.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence

import numpy as np

from hpccomm.backends.base import Operation
from hpccomm.backends.shared import share
from hpccomm.errors import BackendError
from hpccomm.exchange import Exchange

_FOLDER = "/dev/shm"
_BEGUN, _ENDED, _GAVE_UP, _WHAT, _ADDRESS, _DONE = range(6)
_LINE = 8  # words of a cache line
ORDERED = platform.machine() in ("x86_64", "AMD64")


class Board:
    """The words of all ranks; collective to make.

    Args:
        exchange: Reaches the ranks, all of one host.

    Raises:
        BackendError: They do not share memory; raised on all ranks.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._rank, self._size = exchange.rank, exchange.size
        self._width = _LINE * (1 + -(-2 * self._size // _LINE))
        words = share(exchange, 8 * self._size * self._width)
        self._rows = np.frombuffer(words, dtype=np.int64).reshape(self._size, self._width)
        self._own = self._rows[self._rank]
        self._number, self._inside = 0, False

    def arrive(self, what: int, address: int, shares: Sequence[int] = ()) -> Operation:
        """Show where this rank's memory is, and wait for all ranks.

        Args:
            what: Stands for the operation; must be equal on all ranks.
            address: Of the memory that the others may read.
            shares: Up to 2 words a rank that the others may read with `shares`.

        Raises:
            BackendError: The ranks call different operations; raised on all ranks.
        """
        own = self._own
        self._number, self._inside = self._number + 1, True
        own[_WHAT], own[_ADDRESS], own[_DONE] = what, address, 0
        own[_LINE : _LINE + len(shares)] = shares
        own[_BEGUN] = self._number
        begun = self._rows[:, _BEGUN]
        while int(begun.min()) < self._number:
            yield "all ranks to arrive"
        if (self._rows[:, _WHAT] != what).any():
            raise BackendError(
                "reduce or move tensors among the ranks of this host",
                found="the ranks call different operations, or with tensors of different sizes",
                remedy="put checked(…) around the backend, which says who calls what",
                everywhere=True,
            )
        self._refuse_given_up()

    def leave(self) -> Operation:
        """Wait until no rank reads this one's memory any more.

        Raises:
            BackendError: A rank gave the operation up, so that what was read from it may be wrong.
        """
        self._own[_ENDED] = self._number
        ended = self._rows[:, _ENDED]
        while int(ended.min()) < self._number:
            self._refuse_given_up()
            yield "the other ranks"
        self._refuse_given_up()
        self._inside = False

    def give_up(self) -> None:
        """Tell the others that this rank's memory is not to be trusted any more in the operation under way, if any."""
        if self._inside:
            self._own[_GAVE_UP] = self._number

    def address(self, rank: int) -> int:
        """Give where a rank's memory is."""
        return int(self._rows[rank, _ADDRESS])

    def shares(self, rank: int) -> list[int]:
        """Give the words that a rank has given for all ranks."""
        return [int(word) for word in self._rows[rank, _LINE : _LINE + 2 * self._size]]

    def count(self, done: int) -> None:
        """Show how many pieces of its work this rank has done."""
        self._own[_DONE] = done

    def done(self, rank: int) -> int:
        """Give how many pieces a rank has done."""
        return int(self._rows[rank, _DONE])

    def _refuse_given_up(self) -> None:
        gave_up = self._rows[:, _GAVE_UP] == self._number
        if gave_up.any():
            raise BackendError(
                "reduce or move tensors among the ranks of this host",
                found=f"rank {int(gave_up.argmax())} has given the operation up",
                remedy="see that rank's error",
            )
