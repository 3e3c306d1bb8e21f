"""The three groups of a world, made through torch: all ranks, those of a node, and those of a rail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch.distributed as dist

from hpccomm.backends.process_group import NAME
from hpccomm.bootstrap import plugin
from hpccomm.bootstrap.connect import Boot
from hpccomm.expression import Expression


@dataclass(frozen=True)
class Groups:
    """Torch's groups that hold this rank.

    Attributes:
        all_ranks: Torch's default group.
        intra_node: The ranks of this node.
        inter_node: The ranks with this local rank, one a node.
    """

    all_ranks: dist.ProcessGroup
    intra_node: dist.ProcessGroup
    inter_node: dist.ProcessGroup


def make_groups(boot: Boot, expression: Expression) -> Groups:
    """Make them, with a backend for the first and its legs for the others; collective."""
    topology = boot.topology
    dist.init_process_group(
        NAME,
        store=boot.store,
        rank=topology.rank,
        world_size=topology.world_size,
        timeout=boot.timeout,
        pg_options=plugin.Options(expression),
    )
    inside, across = _legs(expression)
    all_ranks = cast(dist.ProcessGroup, dist.group.WORLD)
    return Groups(all_ranks, _own(topology.all_intra_node(), inside), _own(topology.all_inter_node(), across))


def _own(groups: tuple[tuple[int, ...], ...], expression: Expression) -> dist.ProcessGroup:
    """Make all groups, in one order on every rank, and give the one that holds this rank."""
    options = plugin.Options(expression)
    made = [dist.new_group(list(ranks), backend=NAME, pg_options=options) for ranks in groups]
    (own,) = (group for group in made if isinstance(group, dist.ProcessGroup))
    return own


def _legs(expression: Expression) -> tuple[Expression, Expression]:
    """Give the expressions of the groups inside and across nodes."""
    if expression.name == "hierarchical":
        inside, across = expression.arguments
        return inside, across
    return expression, expression
