"""Exchange of small Python objects among the ranks before any backend stands.

An `Exchange` is all that topology, network and bootstrap need of MPI or of a store; it imports neither. Every call
has a deadline.
"""

from __future__ import annotations

import pickle
from array import array
from collections.abc import Callable
from copy import copy
from itertools import accumulate
from typing import Any, Protocol, TypeVar

from hpccomm.errors import DeadlineError, HpccommError, LaunchError, RankLostError
from hpccomm.rollcall import QUIET_S, Describe, RollCall, named, plain
from hpccomm.ulfm import tells_of_loss
from hpccomm.units import format_seconds

T = TypeVar("T")


class Exchange(Protocol):
    """Who I am among how many, and one way to gather a small object of every rank.

    Attributes:
        rank: Who I am.
        size: Among how many.
        name: What the calls are for, in messages; may be set.
        describe: Names a rank, with what is known of its process, in messages; may be set.
    """

    rank: int
    size: int
    name: str
    describe: Describe

    def all_gather(self, value: T, call: str = "gather") -> list[T]:
        """Give every rank the values of all ranks, in rank order.

        Args:
            value: What this rank tells.
            call: What is gathered, for messages.

        Raises:
            DeadlineError: Ranks did not come to this call in time; the text says which.
        """
        ...


class MpiExchange:
    """Exchange over an mpi4py communicator, pickled.

    Args:
        communicator: The communicator; nothing else uses tag 32767 on it.
        timeout_s: Deadline of a call in seconds.
        quiet_s: Seconds of waiting after which it says on stderr who is missing.
        name: What the calls are for, in messages.

    Attributes:
        largest: Most bytes that one call of the library gathers; the same on all ranks.
    """

    largest = 2**31 - 1

    def __init__(
        self, communicator: Any, *, timeout_s: float, quiet_s: float = QUIET_S, name: str = "exchange"
    ) -> None:
        self.communicator = communicator
        self.rank: int = communicator.rank
        self.size: int = communicator.size
        self.name = name
        self._roll_call = RollCall(communicator, timeout_s=timeout_s, quiet_s=quiet_s)

    @property
    def describe(self) -> Describe:
        """Name a rank in messages."""
        return self._roll_call.describe

    @describe.setter
    def describe(self, describe: Describe) -> None:
        self._roll_call.describe = describe

    def all_gather(self, value: T, call: str = "gather") -> list[T]:
        """Give every rank the values of all ranks, in rank order.

        Raises:
            DeadlineError: Ranks did not come to this call in time, or a former call failed so.
            RankLostError: A rank has died, where the job is to go on without it.
        """
        data = pickle.dumps(value)
        lengths = array("q", [0]) * self.size
        self._complete(call, self.communicator.Iallgather, array("q", [len(data)]), lengths)
        gathered = [bytearray() for _ in lengths]
        piece = max(self.largest // self.size, 1)
        for start in range(0, max(lengths), piece):
            counts = [max(0, min(piece, length - start)) for length in lengths]
            pieces = self._gather_bytes(data[start : start + piece], counts, call)
            for whole, part in zip(gathered, pieces, strict=True):
                whole += part
        return [pickle.loads(one) for one in gathered]

    def _gather_bytes(self, data: bytes, counts: list[int], call: str) -> list[memoryview]:
        received = bytearray(sum(counts))
        self._complete(call, self.communicator.Iallgatherv, data, [received, counts])
        parts = zip(accumulate(counts), counts, strict=True)
        return [memoryview(received)[end - count : end] for end, count in parts]

    def _complete(self, call: str, post: Callable[..., Any], *buffers: object) -> None:
        try:
            self._roll_call.complete(lambda: post(*buffers), f"{self.name}: {call}")
        except Exception as error:
            if not tells_of_loss(error):
                raise
            raise RankLostError(
                f"{self.name}: {call} of {self.size} ranks",
                found="a rank has died",
                remedy="call World.shrink on all ranks that are left",
            ) from error

    def arrive(self, call: str) -> bool:
        """Wait for all ranks, and tell whether they came in time; one that goes on alone afterwards has come."""
        try:
            return self._roll_call.arrive(f"{self.name}: {call}")
        except Exception as error:
            if tells_of_loss(error):
                return False
            raise

    def close(self) -> None:
        """Free the communicator, unless a call on it failed."""
        self._roll_call.close()


class StoreExchange:
    """Exchange over a torch store (`set`, `wait`, `get`, `check`); every call uses fresh keys.

    Args:
        store: A store that nothing else uses, e.g. a PrefixStore: keys are counted from 1. Its time-out is the
            deadline of a call.
        rank: Who I am.
        size: Among how many.
        name: What the calls are for, in messages.
    """

    def __init__(self, store: Any, rank: int, size: int, name: str = "exchange") -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self.name = name
        self.describe: Describe = plain
        self._calls = 0

    def all_gather(self, value: T, call: str = "gather") -> list[T]:
        """Give every rank the values of all ranks, in rank order.

        Raises:
            DeadlineError: Ranks did not come to this call within the store's time-out.
            LaunchError: The store fails.
        """
        self._calls += 1
        keys = [f"{self._calls}/{rank}" for rank in range(self.size)]
        try:
            self.store.set(keys[self.rank], pickle.dumps(value))
            self._wait(keys, call)
            return [pickle.loads(self.store.get(key)) for key in keys]
        except RuntimeError as error:
            raise LaunchError(
                f"{self.name}: {call} of {self.size} ranks over the store",
                found=f"the store fails: {error}",
                remedy="see whether the rank that serves the store still runs, and its output for why it stopped",
            ) from error

    def _wait(self, keys: list[str], call: str) -> None:
        try:
            self.store.wait(keys)
        except RuntimeError as error:
            missing = [rank for rank, key in enumerate(keys) if not self.store.check([key])]
            if not missing:
                return
            limit = format_seconds(self.store.timeout.total_seconds())
            raise DeadlineError(
                f"{self.name}: {call} of {self.size} ranks over the store",
                found=f"nothing from {named(missing, self.describe)} within {limit}",
                remedy="see whether these ranks were started, and their output for why they stopped",
            ) from error


def agree(exchange: Exchange, error: Exception | None, call: str = "gather") -> None:
    """Raise on every rank the error of the lowest rank that has one; collective.

    Args:
        exchange: Reaches all ranks that take part.
        error: What went wrong on this rank, or None.
        call: What is agreed on, for messages.

    Raises:
        HpccommError: The same on all ranks, marked `everywhere`; the error's rank stands in its text.
        DeadlineError: Ranks did not come; this rank's own error is its cause.
    """
    raised = first_error(exchange, error, call)
    if raised is not None:
        raise raised from error


def first_error(exchange: Exchange, error: Exception | None, call: str = "gather") -> HpccommError | None:
    """Give every rank the error of the lowest rank that has one, or None; collective.

    Unlike `agree` it lets what all ranks know be told from what kept them from knowing it, which it raises.

    Args:
        exchange: Reaches all ranks that take part.
        error: What went wrong on this rank, or None.
        call: What is agreed on, for messages.

    Raises:
        DeadlineError: Ranks did not come; this rank's own error is its cause.
    """
    try:
        errors = exchange.all_gather(_portable(error), call)
    except DeadlineError as late:
        if error is not None:
            raise late from error
        raise
    first = next((rank for rank, found in enumerate(errors) if found is not None), None)
    if first is None:
        return None
    told = copy(errors[first])
    assert told is not None
    if len({str(found) for found in errors}) > 1:
        told.found = f"rank {first}: {told.found}"
    told.everywhere = True
    return told


def together(exchange: Exchange, action: Callable[[], T], call: str = "gather") -> T:
    """Do something on every rank, and give what it gives here; collective. `call` is what it is, for messages.

    Raises:
        HpccommError: It failed on some rank; raised on every rank, as `agree` does.
    """
    try:
        value = action()
    except Exception as error:
        agree(exchange, error, call)
        raise  # not reached: `agree` raises
    agree(exchange, None, call)
    return value


def _portable(error: Exception | None) -> HpccommError | None:
    if error is None or isinstance(error, HpccommError):
        return error
    return HpccommError(
        "run on every rank", found=f"{type(error).__name__}: {error}", remedy="see the traceback of that rank"
    )
