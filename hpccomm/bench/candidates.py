"""Which backends are measured, and their groups.

Every backend gets a torch group of its own. One that cannot be built takes no other along.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hpccomm.backends.process_group import NAME
from hpccomm.bench.options import Options
from hpccomm.bootstrap import plugin
from hpccomm.errors import HpccommError
from hpccomm.exchange import Exchange, MpiExchange
from hpccomm.expression import load
from hpccomm.topology import Topology


@dataclass
class Candidate:
    """A backend that is measured: a column of the table.

    Attributes:
        expression: The backend.
        required: Whether the user named it, so that not to measure it is a failure.
        group: Its torch group, None if it could not be built.
        dropped: Why it takes no part, or no longer; None while it does.
    """

    expression: str
    required: bool = False
    group: Any = None
    dropped: str | None = None


def make(options: Options, exchange: Exchange, topology: Topology) -> list[Candidate]:
    """Find the backends that the options ask for, else the default ones, and make their groups; collective."""
    has_mpi = isinstance(exchange, MpiExchange)
    more = over_leaves(options.algorithms, has_mpi=has_mpi)
    if not (options.backends or options.algorithms):
        more = defaults(topology, has_mpi=has_mpi)
    found = different([*read(exchange, options.backends), *map(Candidate, more)])
    build(found, timeout_s=options.timeout_s)
    for candidate in found:
        _refuse_device(candidate, options.device)
    return found


def _refuse_device(candidate: Candidate, device: str) -> None:
    """Drop a backend that takes no tensors of a device."""
    if candidate.group is not None:
        taken = candidate.group._runner.backend.support.devices
        if device not in taken:
            candidate.dropped = f"it takes tensors on {' and '.join(sorted(taken))} only, see --device"


def defaults(topology: Topology, *, has_mpi: bool) -> list[str]:
    """Give the backends that are worth a comparison on these ranks.

    One node of at least 4 ranks is cut into pretended nodes, so that hierarchies are seen there too.
    """
    flat = ["mpi4py", "gloo"] if has_mpi else ["gloo"]
    by = ""
    if topology.num_nodes == 1:
        by = f", by={near_root(topology.world_size)}"
    levels = max(topology.sizes) > 1 if topology.num_nodes > 1 else topology.world_size >= 4
    inside = flat[0]
    return flat + [f"hierarchical({inside}, {across}{by})" for across in flat if levels]


def near_root(ranks: int) -> int:
    """Give the proper divisor nearest to the square root; of a prime, the root itself, rounded.

    >>> near_root(4), near_root(32), near_root(7)
    (2, 4, 3)
    """
    root = math.sqrt(ranks)
    divisors = [number for number in range(2, ranks) if ranks % number == 0]
    return min(divisors, key=lambda number: abs(number - root)) if divisors else round(root)


def over_leaves(algorithms: Sequence[str], *, has_mpi: bool) -> list[str]:
    """Give each algorithm over each leaf that moves data here: ``ring(mpi4py)``, ``tree(mpi4py)``, ``ring(gloo)``."""
    leaves = ["mpi4py"] * has_mpi + ["gloo"]
    return [f"{algorithm}({leaf})" for leaf in leaves for algorithm in algorithms]


def read(exchange: Exchange, texts: Sequence[str]) -> list[Candidate]:
    """Read the user's expressions; a file is read by rank 0 alone, for all. Collective.

    Returns:
        A candidate for each different backend, dropped if its file holds none.
    """
    candidates = [_read(text) for text in texts] if exchange.rank == 0 else []
    return different(exchange.all_gather(candidates)[0])


def different(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Give the first candidate of each backend."""
    found: dict[str, Candidate] = {}
    for candidate in candidates:
        found.setdefault(candidate.expression, candidate)
    return list(found.values())


def _read(text: str) -> Candidate:
    try:
        return Candidate(str(load(text, source="--backend")), required=True)
    except HpccommError as error:
        return Candidate(text, required=True, dropped=error.summary)


def build(candidates: Sequence[Candidate], *, timeout_s: float, ranks: Sequence[int] | None = None) -> None:
    """Make the group of each candidate that takes part and has none, or note why it cannot be made; collective.

    Args:
        candidates: The candidates.
        timeout_s: Deadline in seconds of making a group and of its operations.
        ranks: Of the groups; these alone come here with them. None for all.
    """
    for candidate in candidates:
        if candidate.dropped is not None or candidate.group is not None:
            continue
        try:
            options = plugin.Options(candidate.expression)
            candidate.group = dist.new_group(
                None if ranks is None else list(ranks),
                timeout=timedelta(seconds=timeout_s),
                backend=NAME,
                pg_options=options,
                use_local_synchronization=ranks is not None,
            )
        except HpccommError as error:
            candidate.dropped = error.summary


def within(
    candidates: Sequence[Candidate], ranks: Sequence[int], exchange: Exchange, *, timeout_s: float
) -> list[Candidate]:
    """Give the same backends on groups of some ranks: every rank names the group that it is in; collective."""
    found = [Candidate(one.expression, one.required, dropped=one.dropped) for one in candidates]
    build(found, timeout_s=timeout_s, ranks=ranks)
    reasons = exchange.all_gather([one.dropped for one in found])
    for one, of_ranks in zip(found, zip(*reasons, strict=True), strict=True):
        one.dropped = next(filter(None, of_ranks), None)
    return found


def revive(candidates: Sequence[Candidate], *, timeout_s: float) -> None:
    """Make new groups for those candidates that were dropped, whose groups may be dead; collective."""
    for candidate in candidates:
        if candidate.dropped is not None:
            candidate.group = candidate.dropped = None
    build(candidates, timeout_s=timeout_s)
