"""What the figures depend on besides the backend: hosts, ranks, placement, launcher, versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

import torch

from hpccomm import __version__, network
from hpccomm.bootstrap import mpi
from hpccomm.exchange import Exchange, MpiExchange
from hpccomm.launch import Launch
from hpccomm.topology import Topology
from hpccomm.topology.cores import Host, hosts, placement
from hpccomm.topology.grouping import count


@dataclass(frozen=True)
class Environment:
    """Everything that a reader needs to judge or repeat a measurement.

    Attributes:
        command_line: The program with its options; what the launcher was told is not known.
        ranks: Number of ranks.
        nodes: Number of nodes, pretended ones counted.
        topology: Which ranks are on which node, in words.
        node_of_rank: The same as numbers.
        host_of_rank: Which of the hosts each rank is on, by number.
        hosts: The hosts.
        placement: Cores of a rank.
        fewest_cores: That any rank may use.
        networks: Subnets that join the hosts, with the Mbit/s of the slowest one's interface, 0 where unknown.
        network: The one that hpccomm and Gloo in it use; None on one host, or where routes alone join the hosts.
        launcher: What started the ranks.
        mpi: MPI library, version and thread level, or ``none``.
        torch: Version of torch.
        threads: Threads that torch uses on this rank.
        python: Version of Python.
        hpccomm: Version of hpccomm.
        date: When measuring began, with time zone.
    """

    command_line: str
    ranks: int
    nodes: int
    topology: str
    node_of_rank: tuple[int, ...]
    host_of_rank: tuple[int, ...]
    hosts: tuple[Host, ...]
    placement: str
    fewest_cores: int
    networks: Mapping[str, int]
    network: str | None
    launcher: str
    mpi: str
    torch: str
    threads: int
    python: str
    hpccomm: str
    date: str

    @property
    def oversubscribed(self) -> str | None:
        """The banner's text where ranks share cores: which, and on which hosts."""
        crowded = [host for host in self.hosts if host.is_oversubscribed]
        if not crowded:
            return None
        listed = [f"{host.ranks} ranks on {count(host.cores, 'core')} of {host.name}" for host in crowded[:3]]
        more = [f"{len(crowded) - 3} hosts more"] if len(crowded) > 3 else []
        return f"OVERSUBSCRIBED: {', '.join(listed + more)}; times include waiting for a core"

    def entries(self) -> dict[str, Any]:
        """Give all of it as JSON takes it."""
        return {**asdict(self), "oversubscribed": self.oversubscribed is not None}


def describe(exchange: Exchange, topology: Topology, launch: Launch, *, command_line: str) -> Environment:
    """Gather what there is to say; collective."""
    affinities = exchange.all_gather(frozenset(os.sched_getaffinity(0)))
    networks, used = _networks(exchange, topology)
    return Environment(
        command_line=command_line,
        ranks=topology.world_size,
        nodes=topology.num_nodes,
        topology=topology.describe(),
        node_of_rank=topology.nodes,
        host_of_rank=topology.hosts,
        hosts=hosts(topology, affinities),
        placement=placement(topology, affinities),
        fewest_cores=min(map(len, affinities)),
        networks=networks,
        network=used,
        launcher=launch.launcher.name,
        mpi=mpi.describe_library() if isinstance(exchange, MpiExchange) else "none",
        torch=torch.__version__,
        threads=torch.get_num_threads(),
        python=platform.python_version(),
        hpccomm=__version__,
        date=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _networks(exchange: Exchange, topology: Topology) -> tuple[dict[str, int], str | None]:
    """Give the subnets that join several hosts, and the one that is used; collective."""
    firsts = [topology.hosts.index(host) for host in range(len(topology.hostnames))]
    seen = exchange.all_gather(network.interfaces() if exchange.rank in firsts and len(firsts) > 1 else ())
    candidates = [seen[first] for first in firsts]
    if len(candidates) < 2:
        return {}, None
    used = network.common(candidates, os.environ.get("HPCCOMM_INTERFACE") or None)
    return network.common(candidates), next(iter(used), None)
