"""Windows: memory of each rank of a host that all map, through which tensors go in rounds without messages.

In a round every rank puts a part of its tensor into a slot of its own window, and others read it there. Counters say
how many rounds a rank has put in, reduced and read; they only ever rise. A slot is used again when all ranks have read
the round that used it last, so that what is in a window stays right for whoever is late, and a rank that gives an
operation up leaves nothing wrong behind. Stores must be seen in the order in which they are made, as x86 has it.
"""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Sequence
from ctypes import memmove
from typing import NamedTuple

import torch

from hpccomm.backends.base import Operation, offsets
from hpccomm.backends.shared import share
from hpccomm.errors import BackendError
from hpccomm.exchange import Exchange

SLOTS = 4
_PUT, _REDUCED, _READ, _WHAT = 0, 1, 2, 8  # words of a rank's row; calls are told apart for as long as ranks may differ
_CALLS, _WORDS = 8, 16
_HEAD_BYTES = 8 * _WORDS
_LINE_BYTES = 64  # of a cache
_SLOT_BYTES = 512 * 1024  # as much of each rank as stays in the caches
_LEAST_ROW_BYTES = 4096
_IS_ORDERED = platform.machine() in ("x86_64", "AMD64")


Stage = Callable[[int], Operation]
"""What a rank does in a round, by the round's number."""

Block = tuple[int, int]
"""Where a part of a dense tensor is, and its bytes."""


class Cut(NamedTuple):
    """How blocks are cut into pieces: in how many rounds, of how many elements of which width."""

    rounds: int
    step: int
    width: int

    def piece(self, block: Block, number: int) -> Block:
        """Give one piece of a block; those past its end are empty."""
        step = self.step * self.width
        return block[0] + number * step, max(0, min(step, block[1] - number * step))

    def of(self, flat: torch.Tensor, number: int) -> torch.Tensor:
        """Give one piece of a tensor; those past its end are empty."""
        return flat[number * self.step : (number + 1) * self.step]


class Windows:
    """The windows of all ranks of a group; collective to make. Calls come in one order on all ranks.

    Args:
        exchange: Reaches the ranks, all of one host.

    Attributes:
        row_bytes: What a rank can put in for each rank in one round.

    Raises:
        BackendError: They share no memory; raised on all ranks.
    """

    def __init__(self, exchange: Exchange) -> None:
        if not _IS_ORDERED:
            raise BackendError(
                "share memory among the ranks of this host",
                found=f"the processor is no x86-64 but {platform.machine()}",
                remedy="use mpi4py or gloo",
                everywhere=True,
            )
        self._rank, self._size = exchange.rank, exchange.size
        self.row_bytes = max(_SLOT_BYTES // self._size, _LEAST_ROW_BYTES) // _LINE_BYTES * _LINE_BYTES
        self._slot_bytes = (self._size + 1) * self.row_bytes
        self._window_bytes = _HEAD_BYTES + SLOTS * self._slot_bytes
        memory = torch.frombuffer(share(exchange, self._size * self._window_bytes), dtype=torch.uint8)
        self._memory = memory.view(self._size, self._window_bytes)
        self._address = memory.data_ptr()
        self._words = self._memory[:, :_HEAD_BYTES].view(torch.int64).numpy()
        self._own, self._columns = self._words[self._rank], list(self._words.T)
        self._typed: dict[torch.dtype, list[list[torch.Tensor]]] = {}
        self._rounds = self._calls = 0

    def rows_of_own(self, dtype: torch.dtype) -> list[list[torch.Tensor]]:
        """Give for each rank and slot the row that holds what is for this rank, as a tensor of a dtype."""
        if dtype not in self._typed:
            slots = self._memory[:, _HEAD_BYTES:].view(self._size, SLOTS, self._size + 1, self.row_bytes)
            self._typed[dtype] = [[row.view(dtype) for row in slots[rank, :, self._rank]] for rank in range(self._size)]
        return self._typed[dtype]

    def cut(self, longest: int, like: torch.Tensor) -> Cut:
        """Cut blocks of at most so many elements into pieces of about equal length that fit into a row."""
        width = like.element_size()
        rounds = -(-longest * width // self.row_bytes)
        return Cut(rounds, max(1, -(-longest // max(rounds, 1))), width)

    def call(self, what: str, rounds: int) -> Call:
        """Begin a call of so many rounds.

        Args:
            what: Stands for the call; must be equal on all ranks.
            rounds: How many; equal on all ranks.
        """
        self._own[_WHAT + self._calls % _CALLS] = zlib.crc32(what.encode())
        begun = Call(self, self._calls % _CALLS, self._rounds)
        self._calls, self._rounds = self._calls + 1, self._rounds + rounds
        return begun


class Call:
    """One operation's rounds, counted from 0."""

    def __init__(self, windows: Windows, number: int, first: int) -> None:
        self._windows, self._number, self._first = windows, number, first
        self._counts = windows._columns

    def give(self, number: int, row: int, address: int, size: int) -> None:
        """Copy bytes of this process into a row of its slot for a round; the last row is for results."""
        memmove(self._at(self._windows._rank, number, row), address, size)

    def take(self, rank: int, number: int, row: int, address: int, size: int) -> None:
        """Copy bytes of a row of a rank's slot for a round into this process."""
        memmove(address, self._at(rank, number, row), size)

    def given(self, rank: int, number: int, like: torch.Tensor) -> torch.Tensor:
        """Give what a rank has put in for this one, as long as a tensor and of its dtype."""
        row = self._windows.rows_of_own(like.dtype)[rank][(self._first + number) % SLOTS]
        return row if row.numel() == like.numel() else row[: like.numel()]

    def _at(self, rank: int, number: int, row: int) -> int:
        windows = self._windows
        slot = (self._first + number) % SLOTS * windows._slot_bytes
        return windows._address + rank * windows._window_bytes + _HEAD_BYTES + slot + row * windows.row_bytes

    def until_free(self, number: int) -> Operation:
        """Wait until all ranks have read the round that last used this round's slot."""
        count = self._first + number - SLOTS + 1
        while min(self._counts[_READ].tolist()) < count:  # faster than numpy's own for so few
            yield "the other ranks to read"

    def put(self, number: int) -> None:
        """Say that what this rank gives in a round is in its slot."""
        self._windows._own[_PUT] = self._first + number + 1

    def until_put(self, number: int, rank: int | None = None) -> Operation:
        """Wait until all ranks, or one, have put a round in.

        Raises:
            BackendError: They call something else; raised on all ranks that wait.
        """
        count, ranks = self._first + number + 1, slice(None) if rank is None else slice(rank, rank + 1)
        counts = self._counts[_PUT][ranks]
        while min(counts.tolist()) < count:
            yield "all ranks to arrive" if rank is None else f"rank {rank}"
        if number == 0:
            self._compare(ranks)

    def reduced(self, number: int) -> None:
        """Say that this rank's result of a round is in its slot."""
        self._windows._own[_REDUCED] = self._first + number + 1

    def until_reduced(self, number: int) -> Operation:
        """Wait until all ranks' results of a round are in their slots."""
        count = self._first + number + 1
        while min(self._counts[_REDUCED].tolist()) < count:
            yield "the other ranks' results"

    def read(self, number: int) -> None:
        """Say that this rank has read what it reads in a round."""
        self._windows._own[_READ] = self._first + number + 1

    def _compare(self, ranks: slice) -> None:
        whats = self._counts[_WHAT + self._number]
        if set(whats[ranks].tolist()) != {int(whats[self._windows._rank])}:
            raise BackendError(
                "reduce or move tensors among the ranks of this host",
                found="the ranks call different operations, or with tensors of different sizes",
                remedy="put checked(…) around the backend, which says who calls what",
                everywhere=ranks == slice(None),
            )


def blocks_of(tensor: torch.Tensor, counts: Sequence[int]) -> list[Block]:
    """Give where blocks of a dense tensor are, from their elements."""
    width, address = tensor.element_size(), tensor.data_ptr()
    return [(address + start * width, count * width) for start, count in zip(offsets(counts), counts, strict=False)]


def in_rounds(rounds: int, *stages: Stage) -> Operation:
    """Run the stages of all rounds, each one round behind the one before it, so that ranks seldom wait."""
    for number in range(rounds + len(stages) - 1):
        for behind, stage in enumerate(stages):
            if 0 <= number - behind < rounds:
                yield from stage(number - behind)
