"""What is known and connected before any torch group: launcher, MPI, topology, address, store.

`boot` is collective. Its result outlives no process and holds no torch group; `Boot.context` is what the first
backends are built from.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from contextlib import suppress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.rendezvous import rendezvous

from hpccomm import network
from hpccomm.backends.c10d import HashStore, PrefixStore, Store
from hpccomm.backends.context import Context
from hpccomm.bootstrap import mpi
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.settings import RANK_PID, check_equal, port_asked, settings
from hpccomm.bootstrap.store import serve
from hpccomm.errors import LaunchError, WorldError
from hpccomm.exchange import Exchange, MpiExchange, StoreExchange
from hpccomm.launch import ALONE, LAUNCHERS, Launch, detect
from hpccomm.topology import NodeIdentity, Topology, identify, resolve

_POLL_S = 0.001


@dataclass
class Boot:
    """The ranks of a job, connected.

    Attributes:
        launch: What started the processes.
        exchange: Small objects among all ranks.
        communicator: An mpi4py communicator of all ranks for control traffic, or None without MPI.
        topology: Who shares a node with whom.
        address: This host's address that all other hosts reach.
        store: The job's store, under keys of its own.
        endpoint: Address and port of the store's server.
        serves_store: Whether hpccomm's own rank 0 serves the store.
        crowded: Whether more ranks than usable cores share this host.
        cores: Usable cores of this host, over all its ranks.
        timeout_s: Deadline of an operation where nothing else is said.
        mpi_library: The MPI library that joins the ranks, or ``none``.
    """

    launch: Launch
    exchange: Exchange
    communicator: Any
    topology: Topology
    address: str
    store: Store
    endpoint: tuple[str, int]
    serves_store: bool
    crowded: bool
    cores: int
    timeout_s: float
    mpi_library: str
    pid: int = field(default_factory=os.getpid)

    @property
    def timeout(self) -> timedelta:
        """The deadline of an operation."""
        return timedelta(seconds=self.timeout_s)

    def context(self, store: Store, ranks: Sequence[int], name: str) -> Context:
        """Make the context of one group; collective over its ranks.

        Args:
            store: A store that only this group writes to.
            ranks: The group's ranks, in order.
            name: The group's name, the same on its ranks.
        """
        cpu = torch.device("cpu")
        whole = Context(self.topology, store, self.communicator, cpu, self.address, self.timeout_s)
        return whole.split(ranks, name)

    def barrier(self, timeout_s: float) -> bool:
        """Wait for all ranks, and tell whether they came within a time in seconds."""
        if self.communicator is None:
            return self._barrier_over_store()
        request, end = self.communicator.Ibarrier(), time.monotonic() + timeout_s
        while not request.Test():
            if time.monotonic() > end:
                return False
            time.sleep(_POLL_S)
        return True

    def _barrier_over_store(self) -> bool:
        """Wait as `barrier`, for the store's own time; rank 0, whose end may end the store, leaves last."""
        with suppress(LaunchError):
            self.exchange.all_gather(None)
            farewell = StoreExchange(PrefixStore("farewell", self.store), 
            return True
        return False

    def close(self) -> None:
        """Free the communicator; all groups are gone by then."""
        if self.communicator is not None:
            self.communicator.Free()
            self.communicator = None


@dataclass(frozen=True)
class _Hello:
    """What every rank tells all others first."""

    identity: NodeIdentity
    cores: frozenset[int]
    settings: dict[str, str]


_generation = 0
_booted_in: int | None = None


def boot(environ: Mapping[str, str], *, timeout_s: float, port: int = 0, store: Store | None = None) -> Boot:
    """Connect this process with the other ranks; collective.

    Args:
        environ: The environment, read once.
        timeout_s: Deadline in seconds.
        port: The store's port on rank 0's host; 0 lets the kernel choose.
        store: A store that all ranks reach already, where torch has made one.

    Raises:
        LaunchError: Launcher, MPI library and variables contradict each other.
        TopologyError: Node identities contradict each other.
        NetworkError: No usable address, or a busy port.
        OptionError: A setting is wrong or differs between ranks.
        WorldError: This is a child process of a rank.
    """
    global _generation
    _refuse_children()
    _generation += 1
    launch = detect(environ)
    guard.install(launch.hint_rank)
    communicator = mpi.start(launch, environ)
    exchange, store, endpoint = _first_exchange(communicator, store, environ, timeout_s)
    _guard_all(exchange, communicator)
    shared = mpi.shared_memory_leader(communicator) if communicator is not None else None
    hello = _Hello(identify(environ, shared), frozenset(os.sched_getaffinity(0)), settings(environ))
    everyone = exchange.all_gather(hello)
    check_equal([one.settings for one in everyone])
    topology = resolve(exchange.rank, [one.identity for one in everyone])
    address = network.choose(exchange, topology.hosts, environ.get("HPCCOMM_INTERFACE")).address
    serves = store is None
    if store is None:
        store, endpoint = serve(exchange, address, port=port, timeout_s=timeout_s)
    host = topology.hosts[exchange.rank]
    here = [one.cores for one, where in zip(everyone, topology.hosts, strict=True) if where == host]
    cores = len(frozenset[int]().union(*here))
    return Boot(
        launch=launch,
        exchange=exchange,
        communicator=communicator,
        topology=topology,
        address=address,
        store=PrefixStore(f"hpccomm/{_generation}", store),
        endpoint=endpoint,
        serves_store=serves,
        crowded=len(here) > cores,
        cores=cores,
        timeout_s=timeout_s,
    )


def _first_exchange(
    communicator: Any, store: Store | None, environ: Mapping[str, str], timeout_s: float
) -> tuple[Exchange, Store | None, tuple[str, int]]:
    """Reach the other ranks over MPI, over torch's own store, or be alone."""
    if communicator is not None:
        return MpiExchange(communicator), store, ("", 0)
    if "RANK" not in environ and store is None:
        return StoreExchange(HashStore(), 0, 1), store, ("", 0)
    rank, size = int(environ["RANK"]), int(environ["WORLD_SIZE"])
    if store is None:
        store = next(rendezvous("env://", rank, size, timeout=timedelta(seconds=timeout_s)))[0]
    apart = PrefixStore(f"hpccomm/boot/{_generation}", store)
    endpoint = environ["MASTER_ADDR"], int(environ["MASTER_PORT"])
    return StoreExchange(apart, rank, size), store, endpoint


def _guard_all(exchange: Exchange, communicator: Any) -> None:
    guard.rank, guard.size = exchange.rank, exchange.size
    if communicator is not None:
        from mpi4py import MPI

        guard.abort = MPI.COMM_WORLD.Abort


def _refuse_children() -> None:
    """Refuse to start in a process that a rank has forked or spawned."""
    global _booted_in
    spawned = multiprocessing.parent_process() is not None
    if spawned or _booted_in not in (None, os.getpid()):
        raise WorldError(
            "start hpccomm in this process",
            found=f"it is a child that a rank {'spawned' if spawned else 'forked'} (a data loader's worker?)",
            remedy="guard the main program with if __name__ == '__main__', and call init in the rank alone",
        )
    _booted_in = os.getpid()
