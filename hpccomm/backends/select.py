"""Leaf `auto`: the backend for this group, chosen from what is there, with the reason."""

from __future__ import annotations

from hpccomm.backends.base import Backend
from hpccomm.backends.context import Context
from hpccomm.backends.registry import build
from hpccomm.expression import Expression, parse


def choose(context: Context) -> tuple[Expression, str]:
    """Choose a backend for host tensors; pure, the same on every rank.

    Returns:
        The expression and the reason for it, as half a sentence.
    """
    topology = context.topology
    inside = "mpi4py" if context.communicator is not None else "gloo"
    why = "MPI started the ranks" if inside == "mpi4py" else "MPI did not start the ranks"
    if topology.num_nodes == 1:
        return parse(inside), f"{why}, all on one node"
    if max(topology.sizes) == 1:
        return parse("gloo"), f"{topology.num_nodes} nodes of one rank each"
    return parse(f"hierarchical({inside}, gloo)"), f"{why}, on {topology.num_nodes} nodes"


def build_auto(context: Context) -> Backend:
    """Build the backend that `choose` names."""
    return build(choose(context)[0], context)
