"""What a backend is built from: its group's ranks, channels to them, device and limits.

It makes sub-contexts for the parts of a combinator. It knows no backend and holds no policy.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol
from weakref import WeakValueDictionary

import torch

from hpccomm.backends.c10d import PrefixStore, Store
from hpccomm.exchange import Exchange, MpiExchange, StoreExchange
from hpccomm.rollcall import QUIET_S, Describe, named, plain
from hpccomm.topology import Topology
from hpccomm.ulfm import interruptible, revoke
from hpccomm.watch.held import held

_LARGEST_TAG = 32767  # what every MPI library grants at least


# Communicators that some rank gave up: kept, since messages of theirs may be under way, and a freed communicator's
# identity is given to the next one, which would receive them.
_KEPT: list[Any] = []

_standing: WeakValueDictionary[int, Any] = WeakValueDictionary()


def revoke_all(origin: Any) -> None:
    """End, on all ranks, whatever is under way on a communicator and on those that contexts were made with."""
    for communicator in (*(reference() for reference in _standing.valuerefs()), origin):
        if communicator is not None:
            revoke(communicator)


class Beside(Protocol):
    """What the ranks of a group tell each other beside its traffic."""

    @property
    def given_up(self) -> int:
        """The highest number that another rank has given up."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """Seconds from the begin of the collective under way to its deadline; None where it has not waited yet."""
        ...

    def give_up(self, number: int) -> None:
        """Tell the other ranks that this one has given up what they call by a number; it may get lost."""
        ...

    def note(self, text: str) -> None:
        """Put a note into the group's record."""
        ...

    def find_sender(self, tag: int, timeout_s: float) -> int | None:
        """Wait for a message to this rank, and give the rank that sent it, or None where the group has died."""
        ...


@dataclass
class Health:
    """What all contexts of a group and its parts share.

    Attributes:
        broken: Whether some rank gave an operation up.
    """

    broken: bool = False


@dataclass
class Context:
    """One group's surroundings.

    Attributes:
        topology: The ranks of this group and their nodes.
        store: A store that only this group writes to.
        communicator: An mpi4py communicator of exactly these ranks that only this group uses, or None without MPI.
        device: Where this rank's tensors live by default.
        address: This host's address that every other host reaches.
        timeout_s: Deadline of an operation, in seconds, where the call gives none, as the group was made.
        path: Where in the job's groups and expressions this stands, for prefixes and messages.
        quiet_s: Seconds of waiting in the exchange after which it says who is missing.
        describe: Names a rank of this group, with what is known of its process, in messages.
        beside: What the ranks tell each other beside the group's traffic; None where they cannot.
        health: Whether its communicators may be freed at the end.
        survives: Whether the job goes on without ranks that die.
        job_ranks: This group's ranks in the job; empty for all of the job's.
        parts: The contexts made from this one.
    """

    topology: Topology
    store: Store
    communicator: Any
    device: torch.device
    address: str
    timeout_s: float
    path: str = ""
    quiet_s: float = QUIET_S
    describe: Describe = field(default=plain, repr=False)
    beside: Beside | None = field(default=None, repr=False)
    health: Health = field(default_factory=Health, repr=False)
    survives: bool = False
    job_ranks: Sequence[int] = field(default=(), repr=False)
    parts: list[Context] = field(default_factory=list, repr=False)
    _exchange: Exchange | None = field(default=None, repr=False)

    @property
    def members(self) -> Sequence[int]:
        """This group's ranks in the job."""
        return self.job_ranks or range(self.topology.world_size)

    @property
    def exchange(self) -> Exchange:
        """Exchange of small objects with the ranks of this group."""
        if self._exchange is None:
            self._exchange = self._make_exchange()
            self._exchange.describe = self.describe
        return self._exchange

    def _make_exchange(self) -> Exchange:
        name = f"group {self.path.lstrip('/')}"
        if self.communicator is not None:
            return MpiExchange(self.communicator, timeout_s=self.timeout_s, quiet_s=self.quiet_s, name=name)
        store = PrefixStore("exchange", self.store)
        return StoreExchange(store, self.topology.rank, self.topology.world_size, name)

    def split(self, ranks: Sequence[int], name: str) -> Context:
        """Make the context of some of this group's ranks; collective over those ranks alone.

        Args:
            ranks: Ranks of this group in their new order, this rank among them.
            name: Tells this part from the others made from the same context by the same ranks.
        """
        path = f"{self.path}/{name}"
        part = replace(
            self,
            topology=self.topology.subset(ranks),
            store=PrefixStore(f"{name}[{ranks[0]}]", self.store),
            communicator=self._subcommunicator(ranks, path),
            path=path,
            describe=lambda rank: self.describe(ranks[rank]),
            beside=self.beside if list(ranks) == list(range(self.topology.world_size)) else None,
            job_ranks=[self.members[rank] for rank in ranks],
            parts=[],
            _exchange=None,
        )
        self.parts.append(part)
        return part

    def child(self, name: str) -> Context:
        """Make a context of the same ranks with channels of its own; collective."""
        return self.split(range(self.topology.world_size), name)

    def _subcommunicator(self, ranks: Sequence[int], path: str) -> Any:
        if self.communicator is None:
            return None
        group = self.communicator.Get_group()
        members = group.Incl(list(ranks))
        others = [rank for rank in ranks if rank != self.topology.rank]

        def create() -> Any:
            return self.communicator.Create_group(members, tag=zlib.crc32(path.encode()) % _LARGEST_TAG)

        what = f"make channels of group {path.lstrip('/')}"
        with held.over(what, self.timeout_s, lambda: named(others, self.describe)):
            made = interruptible(self.communicator, create, what) if self.survives else create()
        members.Free()
        group.Free()
        _standing[id(made)] = made
        return made

    def close(self) -> None:
        """Free the communicator, unless something on it failed; a second call does nothing."""
        if self.health.broken:
            _KEPT.append(self.communicator)
        elif isinstance(self._exchange, MpiExchange):
            self._exchange.close()
        elif self.communicator is not None:
            self.communicator.Free()
        self.communicator = self._exchange = None

    def close_parts(self) -> None:
        """Close all contexts made from this one and from those, the last first."""
        while self.parts:
            part = self.parts.pop()
            part.close_parts()
            part.close()
