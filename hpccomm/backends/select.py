"""Leaf `auto`: the backend for this group, chosen from what is there, with the reason."""

from __future__ import annotations

from hpccomm.backends.base import Backend
from hpccomm.backends.context import Context
from hpccomm.backends.registry import build
from hpccomm.backends.strict import check_deadline, polled
from hpccomm.expression import Expression, parse
from hpccomm.topology import Topology


def choose(topology: Topology, *, has_mpi: bool) -> tuple[Expression, str]:
    """Choose a backend for host tensors; pure, the same on every rank.

    Args:
        topology: The group's ranks and nodes.
        has_mpi: Whether MPI connects the ranks.

    Returns:
        The expression and the reason for it, as half a sentence.
    """
    inside = "mpi4py" if has_mpi else "gloo"
    why = "MPI joins the ranks" if has_mpi else "MPI does not join the ranks"
    if topology.world_size == 1:
        return parse(inside), "one rank"
    if topology.num_nodes == 1:
        return parse(inside), f"{why}, all on one node"
    if max(topology.sizes) == 1:
        return parse("gloo"), f"{topology.num_nodes} nodes of one rank each"
    return parse(f"hierarchical({inside}, gloo)"), f"{why}, on {topology.num_nodes} nodes"


def build_auto(context: Context, *, deadline: str = "arrival") -> Backend:
    """Build the backend that `choose` names.

    Args:
        context: The group.
        deadline: How MPI holds its own, as `mpi4py` takes it.
    """
    check_deadline("auto", deadline)
    expression, _ = choose(context.topology, has_mpi=context.communicator is not None)
    return build(polled(expression) if deadline == "strict" else expression, context)
