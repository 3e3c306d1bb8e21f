"""What ranks that reach each other tell each other, and `Boot`: all that they have then, before any torch group."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.c10d import PrefixStore, Store
from hpccomm.backends.context import Context
from hpccomm.backends.engine import engine
from hpccomm.bootstrap import tolerance
from hpccomm.bootstrap.device import take, visible_devices
from hpccomm.bootstrap.settings import check_equal, settings
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import DeadlineError
from hpccomm.exchange import Exchange, MpiExchange
from hpccomm.launch import Launch
from hpccomm.launch.launchers import PMI
from hpccomm.liveness import Process, this_process
from hpccomm.rollcall import Describe
from hpccomm.topology import NodeIdentity, Topology, identify
from hpccomm.topology.binding import Binding, bind
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
        survives: Whether the job goes on without ranks that die.
        binding: The GPU that this rank takes, None where it sees none.
        device: That GPU, or the CPU.
        serves_gpus: Whether groups serve GPUs' tensors, for which every rank must see a GPU.
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
    survives: bool = False
    binding: Binding | None = None
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    serves_gpus: bool = False
    pid: int = field(default_factory=os.getpid)

    @property
    def timeout(self) -> timedelta:
        """The deadline of an operation."""
        return timedelta(seconds=self.timeout_s)

    def context(self, store: Store, ranks: Sequence[int], name: str, timeout_s: float) -> Context:
        """Make the context of one group; collective over its ranks.

        Args:
            store: A store that only this group writes to.
            ranks: The group's ranks, in order.
            name: The group's name, the same on its ranks.
            timeout_s: Deadline of what makes it and of its operations, in seconds.
        """
        device = self.device if self.serves_gpus else torch.device("cpu")
        whole = Context(self.topology, store, self.communicator, device, self.address, timeout_s)
        whole.quiet_s, whole.describe, whole.survives = self.quiet_s, self.exchange.describe, self.survives
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
        """Free the communicator, unless a call on it was given up or a rank lost; all groups are gone by then."""
        bereaved = bool(vigil.lost())
        if bereaved:
            tolerance.mourn()
        vigil.leave()
        engine.stop()
        if self.communicator is not None and isinstance(self.exchange, MpiExchange) and not bereaved:
            self.exchange.close()
        self.communicator = None


@dataclass(frozen=True)
class Hello:
    """What every rank tells all others first."""

    identity: NodeIdentity
    process: Process
    cores: frozenset[int]
    settings: dict[str, str]
    gpus: tuple[str, ...]
    held: str = ""


def introduce(
    exchange: Exchange, environ: Mapping[str, str], shared: int | None, held: Binding | None = None
) -> list[Hello]:
    """Have every rank tell all others where it is, and compare their settings; collective.

    Args:
        exchange: Reaches the ranks.
        environ: The environment.
        shared: The lowest rank that shares memory with this one, as MPI sees it, or None.
        held: The GPU that this rank has already, or None.

    Raises:
        OptionError: A setting is wrong or differs between ranks.
    """
    cores = frozenset(os.sched_getaffinity(0))
    hello = Hello(identify(environ, shared), this_process(), cores, settings(environ), visible_devices(environ))
    hello = hello if held is None else replace(hello, held=held.name)
    everyone = exchange.all_gather(hello, "gather of settings")
    exchange.describe = _describe_from([one.process for one in everyone])
    check_equal([one.settings for one in everyone])
    return everyone


def watch_over(boot: Boot, everyone: Sequence[Hello], environ: Mapping[str, str]) -> None:
    """Open the side channel to all ranks, count the cores that those of this host share, and take a GPU; collective."""
    exchange, topology = boot.exchange, boot.topology
    places = [Place(one.identity.hostname, one.process) for one in everyone]
    vigil.join(
        exchange,
        boot.address,
        places,
        quiet_s=boot.quiet_s,
        folder=environ.get("HPCCOMM_FLIGHT_DIR", ""),
        coroner=boot.launch.launcher.offers == frozenset({PMI}),
    )
    if boot.survives:
        vigil.survive(boot.communicator)
    host = topology.hosts[exchange.rank]
    here = [rank for rank, where in enumerate(topology.hosts) if where == host]
    boot.crowded = engine.crowded = len(here) > len(frozenset[int]().union(*(everyone[rank].cores for rank in here)))
    held = [everyone[rank].held for rank in here]
    boot.binding = bind([everyone[rank].gpus for rank in here], here.index(exchange.rank), held)
    boot.device, boot.serves_gpus = take(boot.binding), all(one.gpus for one in everyone)
    exchange.name = "world"


def _describe_from(processes: Sequence[Process]) -> Describe:
    """Give what names a rank, and says of one of this host that its process is stopped or dead."""

    def describe(other: int) -> str:
        state = processes[other].state
        return f"rank {other}" if state == "running" else f"rank {other} ({state})"

    return describe
