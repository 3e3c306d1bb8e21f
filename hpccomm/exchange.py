"""Exchange of small Python objects among the ranks before any backend stands.

An `Exchange` is all that topology, network and bootstrap need of MPI or of a store; it imports neither.
"""

from __future__ import annotations

import pickle
from copy import copy
from typing import Any, Protocol, TypeVar

from hpccomm.errors import HpccommError, LaunchError

T = TypeVar("T")


class Exchange(Protocol):
    """Who I am among how many, and one way to gather a small object of every rank."""

    rank: int
    size: int

    def all_gather(self, value: T) -> list[T]:
        """Give every rank the values of all ranks, in rank order."""
        ...


class MpiExchange:
    """Exchange over an mpi4py communicator (pickled, lower-case calls)."""

    def __init__(self, communicator: Any) -> None:
        self.communicator = communicator
        self.rank: int = communicator.rank
        self.size: int = communicator.size

    def all_gather(self, value: T) -> list[T]:
        """Give every rank the values of all ranks, in rank order."""
        gathered: list[T] = self.communicator.allgather(value)
        return gathered


class StoreExchange:
    """Exchange over a torch store (`set`, `get`); every call uses fresh keys.

    Args:
        store: A store that nothing else uses, e.g. a PrefixStore: keys are counted from 1.
        rank: Who I am.
        size: Among how many.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self.store = store
        self.rank = rank
        self.size = size
        self._calls = 0

    def all_gather(self, value: T) -> list[T]:
        """Give every rank the values of all ranks, in rank order.

        Raises:
            LaunchError: A rank's value cannot be had from the store, e.g. not before its time-out.
        """
        self._calls += 1
        self.store.set(f"{self._calls}/{self.rank}", pickle.dumps(value))
        return [pickle.loads(self._value_of(rank)) for rank in range(self.size)]

    def _value_of(self, rank: int) -> bytes:
        try:
            value: bytes = self.store.get(f"{self._calls}/{rank}")
        except RuntimeError as error:
            raise LaunchError(
                f"gather a value of each of {self.size} ranks over the store",
                found=f"nothing from rank {rank}: {error}",
                remedy="see whether that rank was started, and its output for why it stopped",
            ) from error
        return value


def agree(exchange: Exchange, error: Exception | None) -> None:
    """Raise on every rank the error of the lowest rank that has one; collective.

    Args:
        exchange: Reaches all ranks that take part.
        error: What went wrong on this rank, or None.

    Raises:
        HpccommError: The same on all ranks, marked `everywhere`; the error's rank stands in its text.
    """
    errors = exchange.all_gather(_portable(error))
    first = next((rank for rank, found in enumerate(errors) if found is not None), None)
    if first is None:
        return
    raised = copy(errors[first])
    assert raised is not None
    if len({str(found) for found in errors}) > 1:
        raised.found = f"rank {first}: {raised.found}"
    raised.everywhere = True
    raise raised from error


def _portable(error: Exception | None) -> HpccommError | None:
    if error is None or isinstance(error, HpccommError):
        return error
    return HpccommError(
        "run on every rank", found=f"{type(error).__name__}: {error}", remedy="see the traceback of that rank"
    )
