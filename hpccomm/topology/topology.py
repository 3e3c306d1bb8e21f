"""Who shares a node with whom, derived from the node of every rank; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hpccomm.errors import OptionError, TopologyError
from hpccomm.topology.grouping import Groups, count, grouped, listed, numbered, ranges, sizes_text


@dataclass(frozen=True)
class Topology:
    """The ranks of one group by node, as seen from one of them; TopologyError where the fields do not fit.

    Attributes:
        rank: This process's rank.
        nodes: Node of each rank, numbered by first appearance in rank order.
        hosts: Host of each rank, numbered likewise; differs from `nodes` where a host holds virtual nodes.
        hostnames: Name of each host.
        notes: Disagreements that were found and how they were settled, one sentence each.
        levels: Group of each rank at levels other than nodes (``socket``, ``switch``), numbered likewise.
    """

    rank: int
    nodes: tuple[int, ...]
    hosts: tuple[int, ...]
    hostnames: tuple[str, ...]
    notes: tuple[str, ...] = ()
    levels: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        fits = (
            0 <= self.rank < len(self.nodes) == len(self.hosts)
            and (self.nodes, self.hosts) == (numbered(self.nodes), numbered(self.hosts))
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
        return grouped(self.nodes)

    @cached_property
    def _inter(self) -> Groups:
        return grouped(self.local_ranks)

    def all_intra_node(self) -> Groups:
        """Give the ranks of every node, in node order; the same on every rank, for creating groups."""
        return self._intra

    def all_inter_node(self) -> Groups:
        """Give every rail, by local rank; the same on every rank, for creating groups."""
        return self._inter

    def subset(self, ranks: Sequence[int]) -> Topology:
        """Describe a group of some ranks: group rank i is `ranks[i]`; nodes and hosts are numbered anew.

        The notes stay behind, as they speak of this topology's ranks.

        Raises:
            TopologyError: This rank is not in `ranks`, or a rank is there twice or does not exist.
        """
        members = set(ranks)
        if self.rank not in members or len(members) < len(ranks) or members - set(range(self.world_size)):
            asked = f"describe the group of ranks {ranges(ranks)} as rank {self.rank}"
            found = f"not {len(ranks)} different ranks of {self.world_size} with this one among them"
            raise TopologyError(asked, found=found, remedy="name each member once, and ask on members only")
        nodes, hosts = [self.nodes[rank] for rank in ranks], [self.hosts[rank] for rank in ranks]
        hostnames = tuple(self.hostnames[host] for host in dict.fromkeys(hosts))
        levels = {name: numbered(groups[rank] for rank in ranks) for name, groups in self.levels.items()}
        return Topology(ranks.index(self.rank), numbered(nodes), numbered(hosts), hostnames, levels=levels)

    def by(self, level: str | int) -> Topology:
        """Take another level for the nodes.

        Args:
            level: ``node``, ``socket``, ``switch``, or a number of ranks by which each node is cut.

        Raises:
            OptionError: There is no such level, or nothing is known of it here.
        """
        if level == "node":
            return self
        if isinstance(level, int) and not isinstance(level, bool):
            return self.divided(level)
        if level not in self.levels:
            raise OptionError(
                f"group ranks by {level!r}",
                found=f"known here: node, a number of ranks{''.join(f', {name}' for name in self.levels)}",
                remedy="for switches set HPCCOMM_SWITCH_ID on every host; for sockets bind each rank to one",
                everywhere=True,
            )
        groups = self.levels[str(level)]
        names = tuple(f"{level} {group}" for group in range(len({*groups})))
        return Topology(self.rank, groups, groups, names, levels=self.levels)

    def divided(self, ranks_per_node: int) -> Topology:
        """Cut each node into pieces of so many consecutive local ranks (at least 1); the last may be less."""
        if ranks_per_node < 1:
            asked = f"put {ranks_per_node} ranks on a node"
            raise OptionError(asked, found="no positive number", remedy="give at least 1", everywhere=True)
        pieces = [place // ranks_per_node for place in self.local_ranks]
        nodes = numbered(zip(self.nodes, pieces, strict=True))
        return Topology(self.rank, nodes, self.hosts, self.hostnames, self.notes, self.levels)

    def describe(self) -> str:
        """Write the rank map on one line: ``8 ranks on 2 nodes (4 + 4), by slot: n1 0-3, n2 4-7``.

        The middle of long lists is left out. Virtual nodes are called so and named ``host/node``.
        """
        virtual = self.num_nodes > len(self.hostnames)
        text = f"{count(self.world_size, 'rank')} on {count(self.num_nodes, 'virtual ' * virtual + 'node')}"
        text += f" of {count(len(self.hostnames), 'host')}" if virtual else ""
        text += f" ({sizes_text(self.sizes)}), {self._layout()}" if self.num_nodes > 1 else ""
        homes = [self.hostnames[self.hosts[leader]] for leader in self.leaders]
        names = [f"{home}/{node}" if virtual else home for node, home in enumerate(homes)]
        parts = [f"{name} {ranges(ranks)}" for name, ranks in zip(names, self._intra, strict=True)]
        return f"{text}: {listed(parts, limit=16)}"

    __str__ = describe

    def _layout(self) -> str:
        if list(self.nodes) == sorted(self.nodes):
            return "by slot"
        turns = list(zip(self.local_ranks, self.nodes, strict=True))
        return "by node" if turns == sorted(turns) else "irregular"
