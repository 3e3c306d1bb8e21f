"""Leaf `auto`: the backend for this group, chosen from what is there, with the reason."""

from __future__ import annotations

import os
from pathlib import Path

from hpccomm.backends.base import Backend, check_deadline
from hpccomm.backends.context import Context
from hpccomm.backends.registry import build
from hpccomm.backends.strict import polled
from hpccomm.backends.tuned import TunedBackend, setup_of
from hpccomm.exchange import together
from hpccomm.expression import Expression, parse
from hpccomm.topology import Topology
from hpccomm.tuning import load


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
    """Build what the tuning table of HPCCOMM_TUNING says, where it is of this set-up, else what `choose` names.

    Args:
        context: The group.
        deadline: How MPI holds its own, as `mpi4py` takes it; ``strict`` leaves the table aside.
    """
    check_deadline("auto", deadline)
    expression, _ = choose(context.topology, has_mpi=context.communicator is not None)
    if deadline == "strict":
        return build(polled(expression), context)
    path = os.environ.get("HPCCOMM_TUNING", "")
    return _tuned(context, Path(path), expression) if path else build(expression, context)


def _tuned(context: Context, path: Path, otherwise: Expression) -> Backend:
    """Build what a table says; rank 0 of the group reads it for all."""
    tuning = context.exchange.all_gather(
        together(context.exchange, lambda: load(path) if context.topology.rank == 0 else None)
    )[0]
    assert tuning is not None
    if not (differences := tuning.setup.differences(setup_of(context.exchange, context.topology, context.device))):
        return TunedBackend(context, tuning, path.name)
    backend = build(otherwise, context)
    backend.notes = [*backend.notes, f"{path.name} is not used: it is of {', '.join(differences)}"]
    return backend
