"""Who shares a node with whom, from the node identities that all ranks gathered.

Two ranks are on one host exactly if their hostname and their boot id are equal. Each host is one node unless
HPCCOMM_RANKS_PER_NODE or HPCCOMM_NODE_ID cuts hosts into virtual nodes; nothing joins two hosts. MPI's
shared-memory split is only compared with that rule: it may stop at NUMA domains, and launchers get it wrong.

This module must not know MPI, torch or launchers, and never computes a node from rank arithmetic. All but
`identify` is pure: equal identities give equal nodes, groups and errors on every rank.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path

from hpccomm.errors import HpccommError, OptionError, TopologyError

_FORWARD = "on all ranks (by mpirun -x, mpiexec -genv or srun --export)"
Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class NodeIdentity:
    """What one rank knows of the node it is on.

    Attributes:
        hostname: The kernel's name of the host.
        boot_id: The kernel's id of this boot, empty where it cannot be read.
        shared: Lowest world rank in MPI's shared-memory split around this rank; None without MPI.
        claimed: HPCCOMM_NODE_ID of this rank; None where unset or empty.
        ranks_per_node: HPCCOMM_RANKS_PER_NODE of this rank as it stands there; None where unset or empty.
    """

    hostname: str
    boot_id: str
    shared: int | None
    claimed: str | None
    ranks_per_node: str | None


@dataclass(frozen=True)
class Topology:
    """The ranks of one group by node, as seen from one of them; TopologyError where the fields do not fit.

    Attributes:
        rank: This process's rank.
        nodes: Node of each rank, numbered by first appearance in rank order.
        hosts: Host of each rank, numbered likewise; differs from `nodes` where a host holds virtual nodes.
        hostnames: Name of each host.
        notes: Disagreements that were found and how they were settled, one sentence each.
    """

    rank: int
    nodes: tuple[int, ...]
    hosts: tuple[int, ...]
    hostnames: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fits = (
            0 <= self.rank < len(self.nodes) == len(self.hosts)
            and (self.nodes, self.hosts) == (_numbered(self.nodes), _numbered(self.hosts))
            and len({*zip(self.nodes, self.hosts, strict=True)}) == self.num_nodes
            and len(self.hostnames) == len({*self.hosts})
        )
        if not fits:
            asked, found = "describe ranks by node", "rank, nodes, hosts and hostnames do not fit together"
            raise TopologyError(asked, found=found, remedy="build the Topology with resolve()")

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.nodes)

    @property
    def num_nodes(self) -> int:
        """Number of nodes, virtual ones counted."""
        return len(self._intra)

    @property
    def node_rank(self) -> int:
        """Node of this rank."""
        return self.nodes[self.rank]

    @property
    def local_rank(self) -> int:
        """Place of this rank on its node."""
        return self.local_ranks[self.rank]

    @property
    def local_world_size(self) -> int:
        """Number of ranks on this rank's node."""
        return len(self.intra_node)

    @property
    def intra_node(self) -> tuple[int, ...]:
        """Ranks of this rank's node, ascending."""
        return self._intra[self.node_rank]

    @property
    def inter_node(self) -> tuple[int, ...]:
        """Rail: the ranks with this local rank, one a node, ascending; small nodes are not on all rails."""
        return self._inter[self.local_rank]

    @property
    def leaders(self) -> tuple[int, ...]:
        """Rank with local rank 0 of every node; in node order, which is ascending."""
        return self._inter[0]

    @property
    def one_host(self) -> bool:
        """Whether all ranks are on one real host, however many nodes it pretends to be."""
        return len(self.hostnames) == 1

    @property
    def smallest_node(self) -> int:
        """Number of ranks on the node that has the fewest."""
        return min(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of ranks on every node."""
        return tuple(len(ranks) for ranks in self._intra)

    @cached_property
    def local_ranks(self) -> tuple[int, ...]:
        """Place of every rank on its node."""
        places = {rank: place for ranks in self._intra for place, rank in enumerate(ranks)}
        return tuple(places[rank] for rank in range(self.world_size))

    @cached_property
    def _intra(self) -> Groups:
        return _grouped(self.nodes)

    @cached_property
    def _inter(self) -> Groups:
        return _grouped(self.local_ranks)

    def all_intra_node(self) -> Groups:
        """Give the ranks of every node, in node order; the same on every rank, for creating groups."""
        return self._intra

    def all_inter_node(self) -> Groups:
        """Give every rail, by local rank; the same on every rank, for creating groups."""
        return self._inter

    def ranks_on(self, node: int) -> tuple[int, ...]:
        """Give the ranks of a node, ascending; TopologyError where there is no such node."""
        if node not in range(self.num_nodes):
            found = f"nodes 0 to {self.num_nodes - 1}"
            raise TopologyError(f"list the ranks of node {node}", found=found, remedy="ask for one of these")
        return self._intra[node]

    def subset(self, ranks: Sequence[int]) -> Topology:
        """Describe a group of some ranks: group rank i is `ranks[i]`; nodes and hosts are numbered anew.

        The notes stay behind, as they speak of this topology's ranks.

        Raises:
            TopologyError: This rank is not in `ranks`, or a rank is there twice or does not exist.
        """
        members = set(ranks)
        if self.rank not in members or len(members) < len(ranks) or members - set(range(self.world_size)):
            asked = f"describe the group of ranks {_ranges(ranks)} as rank {self.rank}"
            found = f"not {len(ranks)} different ranks of {self.world_size} with this one among them"
            raise TopologyError(asked, found=found, remedy="name each member once, and ask on members only")
        nodes, hosts = [self.nodes[rank] for rank in ranks], [self.hosts[rank] for rank in ranks]
        hostnames = tuple(self.hostnames[host] for host in dict.fromkeys(hosts))
        return Topology(ranks.index(self.rank), _numbered(nodes), _numbered(hosts), hostnames)

    def divided(self, ranks_per_node: int) -> Topology:
        """Cut each node into pieces of so many consecutive local ranks (at least 1); the last may be less."""
        if ranks_per_node < 1:
            asked = f"put {ranks_per_node} ranks on a node"
            raise OptionError(asked, found="no positive number", remedy="give at least 1", everywhere=True)
        pieces = [place // ranks_per_node for place in self.local_ranks]
        nodes = _numbered(zip(self.nodes, pieces, strict=True))
        return Topology(self.rank, nodes, self.hosts, self.hostnames, self.notes)

    def describe(self) -> str:
        """Write the rank map on one line: ``8 ranks on 2 nodes (4 + 4), by slot: n1 0-3, n2 4-7``.

        The middle of long lists is left out. Virtual nodes are called so and named ``host/node``.
        """
        virtual = self.num_nodes > len(self.hostnames)
        text = f"{_count(self.world_size, 'rank')} on {_count(self.num_nodes, 'virtual ' * virtual + 'node')}"
        text += f" of {_count(len(self.hostnames), 'host')}" if virtual else ""
        text += f" ({_sum(self.sizes)}), {self._layout()}" if self.num_nodes > 1 else ""
        homes = [self.hostnames[self.hosts[leader]] for leader in self.leaders]
        names = [f"{home}/{node}" if virtual else home for node, home in enumerate(homes)]
        parts = [f"{name} {_ranges(ranks)}" for name, ranks in zip(names, self._intra, strict=True)]
        return f"{text}: {_listed(parts, limit=16)}"

    __str__ = describe

    def _layout(self) -> str:
        if list(self.nodes) == sorted(self.nodes):
            return "by slot"
        turns = list(zip(self.local_ranks, self.nodes, strict=True))
        return "by node" if turns == sorted(turns) else "irregular"


def identify(environ: Mapping[str, str], shared: int | None) -> NodeIdentity:
    """Read this process's node identity; `shared` as there (lowest rank of its shared-memory split)."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot_id = ""
    claimed, ranks_per_node = environ.get("HPCCOMM_NODE_ID"), environ.get("HPCCOMM_RANKS_PER_NODE")
    return NodeIdentity(os.uname().nodename, boot_id, shared, claimed or None, ranks_per_node or None)


def resolve(rank: int, identities: Sequence[NodeIdentity]) -> Topology:
    """Find who shares a node with whom, as seen from `rank`, given the identity of every rank in rank order.

    Raises:
        TopologyError: A variable differs among ranks, or one HPCCOMM_NODE_ID is claimed on two hosts.
        OptionError: HPCCOMM_RANKS_PER_NODE is no positive integer, or both variables are set.
    """
    hosts = _numbered((identity.hostname, identity.boot_id) for identity in identities)
    hostnames = tuple(identities[ranks[0]].hostname for ranks in _grouped(hosts))
    claims = [identity.claimed for identity in identities]
    pieces = [identity.ranks_per_node for identity in identities]
    _check_variables(claims, pieces, hosts)
    notes = _disagreements([identity.shared for identity in identities], hosts, hostnames)
    topology = Topology(rank, _numbered(zip(hosts, claims, strict=True)), hosts, hostnames, notes)
    return topology if pieces[0] is None else topology.divided(int(pieces[0]))


def _check_variables(claims: list[str | None], pieces: list[str | None], hosts: Sequence[int]) -> None:
    if any(claims) and any(pieces):
        raise _refusal(OptionError, "HPCCOMM_NODE_ID and HPCCOMM_RANKS_PER_NODE are both set", "unset one")
    other = next((rank for rank, value in enumerate(pieces) if value != pieces[0]), None)
    if other is not None:
        one, two = (f"{pieces[rank] or 'unset'} on rank {rank}" for rank in (0, other))
        raise _refusal(TopologyError, f"HPCCOMM_RANKS_PER_NODE is {one}, {two}", f"set one value {_FORWARD}")
    if pieces[0] is not None and not re.fullmatch("[1-9][0-9]{0,8}", pieces[0]):
        raise _refusal(OptionError, f"HPCCOMM_RANKS_PER_NODE={pieces[0]!r}", "set it to a positive integer")
    unset = [rank for rank, claim in enumerate(claims) if not claim]
    if 0 < len(unset) < len(claims):
        found = f"HPCCOMM_NODE_ID is unset on ranks {_ranges(unset)} and set on the others"
        raise _refusal(TopologyError, found, f"unset it or set it {_FORWARD}")
    for ranks in [] if unset else _grouped(_numbered(claims)):
        if len({hosts[rank] for rank in ranks}) > 1:
            found = f"HPCCOMM_NODE_ID={claims[ranks[0]]!r} on ranks {_ranges(ranks)} of several hosts"
            raise _refusal(TopologyError, found, "set HPCCOMM_NODE_ID differently on different hosts")


def _refusal(kind: type[HpccommError], found: str, remedy: str) -> HpccommError:
    return kind("cut hosts into virtual nodes", found=found, remedy=remedy, everywhere=True)


def _disagreements(shared: list[int | None], hosts: Sequence[int], names: Sequence[str]) -> tuple[str, ...]:
    pairs = {(split, host) for split, host in zip(shared, hosts, strict=True) if split is not None}
    splits_of, hosts_of = Counter(host for _, host in pairs), Counter(split for split, _ in pairs)
    finer = {names[host] for host in splits_of if splits_of[host] > 1}
    joined = {names[host] for split, host in pairs if hosts_of[split] > 1}
    alike = {name for name, count in Counter(names).items() if count > 1}
    texts = {
        "MPI's shared-memory split cuts {}; each still counts as one host": finer,
        "MPI's shared-memory split joins {}; by hostname and boot id they count as separate hosts": joined,
        "several boot ids under the hostname {}; they count as separate hosts": alike,
    }
    return tuple(text.format(_listed(sorted(found))) for text, found in texts.items() if found)


def _numbered(keys: Iterable[Hashable]) -> tuple[int, ...]:
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def _grouped(numbers: Sequence[int]) -> Groups:
    groups: list[list[int]] = [[] for _ in {*numbers}]
    for rank, number in enumerate(numbers):
        groups[number].append(rank)
    return tuple(map(tuple, groups))


def _ranges(ranks: Sequence[int]) -> str:
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])]
    return _listed([f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs], ",")


def _sum(sizes: Sequence[int]) -> str:
    terms = [f"{count} x {size}" for size, count in sorted(Counter(sizes).items(), reverse=True)]
    return _listed(terms if len(sizes) > 8 else [str(size) for size in sizes], " + ")


def _listed(parts: list[str], separator: str = ", ", limit: int = 8) -> str:
    return separator.join(parts if len(parts) <= limit else [*parts[:3], "...", parts[-1]])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
