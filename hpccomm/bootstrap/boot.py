"""What is known and connected before any torch group: launcher, MPI, topology, address, store.

`boot` is collective. Its result outlives no process and holds no torch group; `Boot.context` is what the first
backends are built from.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import torch
from torch.distributed.rendezvous import rendezvous

from hpccomm import network
from hpccomm.backends.c10d import HashStore, PrefixStore, Store
from hpccomm.backends.context import Context
from hpccomm.backends.engine import engine
from hpccomm.bootstrap import mpi
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.settings import RANK_PID, check_equal, port_asked, quiet_s, settings
from hpccomm.bootstrap.store import fresh, serve
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import DeadlineError, LaunchError, WorldError
from hpccomm.exchange import Exchange, MpiExchange, StoreExchange, agree
from hpccomm.launch import ALONE, LAUNCHERS, Launch, Launcher, detect
from hpccomm.launch.launchers import PMI
from hpccomm.liveness import Process, this_process
from hpccomm.rollcall import Describe
from hpccomm.topology import NodeIdentity, Topology, identify, resolve
from hpccomm.watch.missing import Place


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
        timeout_s: Deadline of an operation where nothing else is said.
        quiet_s: Seconds of waiting after which ranks say who is missing.
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
    timeout_s: float
    quiet_s: float
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
        whole.quiet_s, whole.describe = self.quiet_s, self.exchange.describe
        return whole.split(ranks, name)

    def barrier(self) -> bool:
        """Wait for all ranks until the deadline, and tell whether they came."""
        if isinstance(self.exchange, MpiExchange):
            return self.exchange.arrive("end")
        return self._barrier_over_store()

    def _barrier_over_store(self) -> bool:
        """Wait for the store's own time; rank 0 leaves last, since its end may be the end of the store."""
        left, others = PrefixStore("left", self.store), range(1, self.exchange.size)
        with suppress(RuntimeError, DeadlineError):
            self.exchange.all_gather(None, "end")
            if self.exchange.rank == 0:
                left.wait([str(rank) for rank in others])
            else:
                left.set(str(self.exchange.rank), "")
            return True
        return False

    def close(self) -> None:
        """Free the communicator, unless a call on it was given up; all groups are gone by then."""
        vigil.leave()
        engine.stop()
        if self.communicator is not None and isinstance(self.exchange, MpiExchange):
            self.exchange.close()
        self.communicator = None


@dataclass(frozen=True)
class _Hello:
    """What every rank tells all others first."""

    identity: NodeIdentity
    process: Process
    cores: frozenset[int]
    settings: dict[str, str]


@dataclass(frozen=True)
class Joined:
    """What torch has connected before hpccomm is asked.

    Attributes:
        store: A store that all ranks reach.
        rank: This process's rank.
        size: The number of ranks.
    """

    store: Store
    rank: int
    size: int


_booted_in: int | None = None
_torch_store: Store | None = None


def enter(environ: Mapping[str, str]) -> None:
    """Refuse to start in a child process of a rank; watch over the failures of this process from here on.

    Raises:
        WorldError: This is a child process of a rank.
    """
    row = next(row for row in LAUNCHERS if row.started(environ))
    _refuse_children(environ, row)
    rank = environ.get(row.rank, "")
    guard.install(int(rank) if rank.isdecimal() else 0)
    guard.abort = guard.abort or mpi.abort_before_start(row, environ)
    vigil.begin(row)


def boot(environ: Mapping[str, str], *, timeout_s: float, port: int = 0, joined: Joined | None = None) -> Boot:
    """Connect this process with the other ranks; collective.

    Args:
        environ: The environment, read once.
        timeout_s: Deadline in seconds.
        port: The store's port on rank 0's host; 0 takes HPCCOMM_STORE_PORT, else lets the kernel choose.
        joined: What torch has connected already.

    Raises:
        DeadlineError: Ranks have not come in time; the text says which.
        LaunchError: Launcher, MPI library and variables contradict each other.
        TopologyError: Node identities contradict each other.
        NetworkError: No usable address, or a busy port.
        OptionError: A setting is wrong or differs between ranks.
        WorldError: This is a child process of a rank.
    """
    enter(environ)
    if joined is not None:
        guard.rank = joined.rank
    launch = detect(environ)
    guard.rank_0_reports = not launch.launcher.offers  # what offers nothing by itself does not end the others either
    apart = joined is not None and launch.launcher is ALONE
    quiet = quiet_s(environ)
    communicator = None if apart else mpi.start(launch, environ, timeout_s=timeout_s, quiet_s=quiet)
    exchange, store = first_exchange(launch, communicator, joined, timeout_s, quiet)
    guard.rank, guard.size = exchange.rank, exchange.size
    shared = mpi.shared_memory_leader(communicator) if communicator is not None else None
    cores = frozenset(os.sched_getaffinity(0))
    hello = _Hello(identify(environ, shared), this_process(), cores, settings(environ))
    everyone = exchange.all_gather(hello, "gather of settings")
    exchange.describe = _describe_from([one.process for one in everyone])
    check_equal([one.settings for one in everyone])
    topology = resolve(exchange.rank, [one.identity for one in everyone])
    address = network.choose(exchange, topology.hosts, environ.get("HPCCOMM_INTERFACE")).address
    serves = store is None
    if store is not None:
        endpoint = environ.get("MASTER_ADDR", ""), int(environ.get("MASTER_PORT") or 0)
    else:
        store, endpoint = serve(exchange, address, port=port or port_asked(environ), timeout_s=timeout_s)
    places = [Place(one.identity.hostname, one.process) for one in everyone]
    by_pmi, folder = launch.launcher.offers == frozenset({PMI}), environ.get("HPCCOMM_FLIGHT_DIR", "")
    vigil.join(exchange, address, places, quiet_s=quiet, folder=folder, coroner=by_pmi)
    host = topology.hosts[exchange.rank]
    here = [one.cores for one, where in zip(everyone, topology.hosts, strict=True) if where == host]
    usable = len(frozenset[int]().union(*here))
    engine.threaded = communicator is None or mpi.calls_from_threads()
    engine.crowded = len(here) > usable
    exchange.name = "world"
    return Boot(
        launch=launch,
        exchange=exchange,
        communicator=communicator,
        topology=topology,
        address=address,
        store=fresh(store, range(exchange.size), "world"),
        endpoint=endpoint,
        serves_store=serves,
        crowded=len(here) > usable,
        timeout_s=timeout_s,
        quiet_s=quiet,
        mpi_library=mpi.describe_library() if communicator is not None else "none",
    )


def _describe_from(processes: Sequence[Process]) -> Describe:
    """Give what names a rank, and says of one of this host that its process is stopped or dead."""

    def describe(other: int) -> str:
        state = processes[other].state
        return f"rank {other}" if state == "running" else f"rank {other} ({state})"

    return describe


def first_exchange(
    launch: Launch, communicator: Any, joined: Joined | None, timeout_s: float, quiet_s: float
) -> tuple[Exchange, Store | None]:
    """Reach the other ranks over MPI, over torch's own store, or be alone; give torch's store if there is one."""
    if joined is None and not launch.uses_mpi:
        assert launch.rank is not None and launch.size is not None
        joined = _meet(launch.rank, launch.size, timeout_s)
    store = None if joined is None else joined.store
    if communicator is not None:
        exchange = MpiExchange(communicator, timeout_s=timeout_s, quiet_s=quiet_s, name="start-up")
        if joined is not None:
            agree(exchange, _difference(joined, exchange))
        return exchange, store
    if joined is None:
        return StoreExchange(HashStore(), 0, 1, "start-up"), None
    apart = fresh(joined.store, range(joined.size), "boot")
    return StoreExchange(apart, joined.rank, joined.size, "start-up"), store


def _difference(joined: Joined, exchange: Exchange) -> LaunchError | None:
    if (joined.rank, joined.size) == (exchange.rank, exchange.size):
        return None
    return LaunchError(
        f"make torch's rank {joined.rank} of {joined.size} a rank of hpccomm",
        found=f"for MPI this process is rank {exchange.rank} of {exchange.size}",
        remedy="give init_process_group MPI's rank and size, or call hpccomm.init, which does",
    )


def _meet(rank: int, size: int, timeout_s: float) -> Joined:
    """Join the store that torchrun's variables name; kept for later, since rank 0 may be what serves it."""
    global _torch_store
    timeout = timedelta(seconds=timeout_s)
    if _torch_store is None:
        _torch_store = next(rendezvous("env://", rank, size, timeout=timeout))[0]
    _torch_store.set_timeout(timeout)
    return Joined(_torch_store, rank, size)


def _refuse_children(environ: Mapping[str, str], launcher: Launcher) -> None:
    global _booted_in
    rank_pid = environ.get(RANK_PID)
    forked = _booted_in not in (None, os.getpid())
    spawned = multiprocessing.parent_process() is not None and (bool(rank_pid) or bool(launcher.offers))
    if forked or spawned or rank_pid == str(os.getppid()):
        raise WorldError(
            "start hpccomm in this process",
            found=f"it is a child that a rank {'forked' if forked else 'started'} (a data loader's worker?)",
            remedy="call init in the rank alone, in a main program guarded by if __name__ == '__main__'; another "
            f"program must be started without {RANK_PID} and the variables of the launcher",
        )
    _booted_in = os.getpid()
