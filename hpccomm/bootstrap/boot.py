"""What is known and connected before any torch group: launcher, MPI, topology, address, store.

`boot` is collective. Its result outlives no process and holds no torch group; `Boot.context` is what the first
backends are built from.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from torch.distributed.rendezvous import rendezvous

from hpccomm import network
from hpccomm.backends.c10d import HashStore, Store
from hpccomm.backends.engine import engine
from hpccomm.bootstrap import mpi, tolerance, tracing
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.connect import Boot, introduce, watch_over
from hpccomm.bootstrap.settings import RANK_PID, port_asked, quiet_s
from hpccomm.bootstrap.store import fresh, serve
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import DeadlineError, HpccommError, LaunchError, NetworkError, WorldError
from hpccomm.exchange import Exchange, MpiExchange, StoreExchange, agree
from hpccomm.launch import ALONE, Launch, Launcher, detect, launcher_of
from hpccomm.topology import resolve


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
    row = launcher_of(environ)
    _refuse_children(environ, row)
    rank = environ.get(row.rank, "")
    guard.install(int(rank) if rank.isdecimal() else 0)
    guard.abort = guard.abort or mpi.abort_before_start(row, environ)
    vigil.begin(row)


def boot(
    environ: Mapping[str, str],
    *,
    timeout_s: float,
    port: int = 0,
    joined: Joined | None = None,
    survives: bool = False,
) -> Boot:
    """Connect this process with the other ranks; collective.

    Args:
        environ: The environment, read once.
        timeout_s: Deadline in seconds.
        port: The store's port on rank 0's host; 0 takes HPCCOMM_STORE_PORT, else lets the kernel choose.
        joined: What torch has connected already.
        survives: Whether the job is to go on without ranks that die.

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
    # What offers nothing by itself does not end the others either, nor does a launcher that tolerates losses
    guard.rank_0_reports = not launch.launcher.offers or tolerance.is_on(environ)
    apart = joined is not None and launch.launcher is ALONE
    quiet = quiet_s(environ)
    if survives:
        tolerance.require(launch, environ)
        tracing.refuse(environ)
    prepare = tolerance.prepare if survives else None
    communicator = None if apart else mpi.start(launch, environ, timeout_s=timeout_s, quiet_s=quiet, prepare=prepare)
    exchange, store = first_exchange(launch, communicator, joined, timeout_s, quiet)
    if tolerance.is_on(environ) and communicator is not None:
        tolerance.begin(exchange, survives)
    guard.rank, guard.size = exchange.rank, exchange.size
    shared = mpi.shared_memory_leader(communicator, timeout_s) if communicator is not None else None
    everyone = introduce(exchange, environ, shared)
    topology = resolve(exchange.rank, [one.identity for one in everyone])
    address = network.choose(exchange, topology.hosts, environ.get("HPCCOMM_INTERFACE")).address
    serves = store is None
    if store is not None:
        endpoint = environ.get("MASTER_ADDR", ""), int(environ.get("MASTER_PORT") or 0)
    else:
        store, endpoint = serve(exchange, address, port=port or port_asked(environ), timeout_s=timeout_s)
    engine.threaded = communicator is None or mpi.calls_from_threads()
    made = Boot(
        launch=launch,
        exchange=exchange,
        communicator=communicator,
        topology=topology,
        address=address,
        store=fresh(store, range(exchange.size), "world"),
        endpoint=endpoint,
        serves_store=serves,
        crowded=False,
        timeout_s=timeout_s,
        quiet_s=quiet,
        mpi_library=mpi.describe_library() if communicator is not None else "none",
        survives=survives,
    )
    if environ.get(tracing.VARIABLE):
        tracing.begin(environ[tracing.VARIABLE], exchange, address, timeout_s)
    watch_over(made, everyone, environ)
    return made


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
        try:
            _torch_store = next(rendezvous("env://", rank, size, timeout=timeout))[0]
        except RuntimeError as error:
            raise _not_met(rank, size, error) from error
    _torch_store.set_timeout(timeout)
    return Joined(_torch_store, rank, size)


def _not_met(rank: int, size: int, error: RuntimeError) -> HpccommError:
    """Give the error for torch's own, of a store that cannot be served or reached or that ranks do not come to."""
    found = str(error).partition("\n")[0]
    is_late = "timed out" in found.lower()
    where = f"MASTER_ADDR={os.environ.get('MASTER_ADDR')} and MASTER_PORT={os.environ.get('MASTER_PORT')}"
    return (DeadlineError if is_late else NetworkError)(
        f"meet as rank {rank} of {size} at {where}",
        found=found,
        remedy="see whether all ranks were started with these two, and their output for why they stopped"
        if is_late
        else "give all ranks rank 0's address, and a port that is free there",
    )


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
