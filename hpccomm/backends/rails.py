"""Which rank's block travels on which rail, for a hierarchy's reduce-scatter and all-gather.

The block of a rank belongs to the rail of its local rank; ranks past the last rail share the rails round-robin.
On its way a buffer is ordered by (rail, node, rank). It knows no backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

import torch

from hpccomm.backends.base import offsets
from hpccomm.topology import Topology


class Rails:
    """The travelling order of blocks.

    Args:
        topology: The group's ranks on their nodes.
        rails: How many rails there are: the smallest node's number of ranks.
        counts: Elements of each rank's block.
    """

    def __init__(self, topology: Topology, rails: int, counts: Sequence[int]) -> None:
        self._node = topology.node_rank
        self._local_world_size = topology.local_world_size
        self._counts = counts
        self._groups: list[list[list[int]]] = [[[] for _ in range(topology.num_nodes)] for _ in range(rails)]
        for rank, (node, local) in enumerate(zip(topology.nodes, topology.local_ranks, strict=True)):
            self._groups[local % rails][node].append(rank)

    def on_rail(self, rail: int) -> int:
        """Count the elements that travel on a rail; none past the last rail."""
        return sum(self.by_node(rail)) if rail < len(self._groups) else 0

    def by_node(self, rail: int) -> list[int]:
        """Count a rail's elements that belong to each node."""
        return [self._total(ranks) for ranks in self._groups[rail]]

    @cached_property
    def by_local_rank(self) -> list[int]:
        """Elements that each rank of this node carries, for all nodes together."""
        return [self.on_rail(local) for local in range(self._local_world_size)]

    @cached_property
    def here_by_local_rank(self) -> list[int]:
        """Elements that each rank of this node carries for this node alone."""
        here = [self._total(groups[self._node]) for groups in self._groups]
        return here + [0] * (self._local_world_size - len(here))

    def here(self, rail: int) -> list[int]:
        """List the ranks of this node whose blocks a rail carries."""
        return self._groups[rail][self._node] if rail < len(self._groups) else []

    @cached_property
    def travelling(self) -> list[int]:
        """All ranks in travelling order."""
        return [rank for groups in self._groups for ranks in groups for rank in ranks]

    @cached_property
    def travelling_here(self) -> list[int]:
        """This node's ranks in travelling order."""
        return [rank for groups in self._groups for rank in groups[self._node]]

    def blocks(self, flat: torch.Tensor, ranks: Iterable[int], order: Sequence[int]) -> torch.Tensor:
        """Concatenate the blocks of `ranks` out of `flat`, which holds the blocks of `order` one after the other."""
        starts = dict(zip(order, offsets([self._counts[rank] for rank in order]), strict=False))
        chosen = [flat[starts[rank] : starts[rank] + self._counts[rank]] for rank in ranks]
        return torch.cat(chosen) if chosen else flat.new_empty(0)

    def _total(self, ranks: Iterable[int]) -> int:
        return sum(self._counts[rank] for rank in ranks)
