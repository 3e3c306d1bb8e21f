"""Which backends are measured, and their groups.

Every backend gets a torch group of its own. One that cannot be built costs its own column only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from hpccomm.backends.process_group import NAME
from hpccomm.bootstrap.plugin import Options
from hpccomm.errors import HpccommError
from hpccomm.exchange import Exchange
from hpccomm.expression import load
from hpccomm.topology import Topology


@dataclass
class Column:
    """One backend of the table.

    Attributes:
        expression: The backend.
        group: Its torch group, None if it could not be built.
        dropped: Why it takes no part, or no longer; None while it does.
    """

    expression: str
    group: Any = None
    dropped: str | None = None


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


def read(exchange: Exchange, texts: Sequence[str]) -> list[Column]:
    """Read expressions; a file is read by rank 0 alone, for all. Collective.

    Returns:
        A column for each different backend, dropped if its file holds none.
    """
    columns = [_read(text) for text in texts] if exchange.rank == 0 else []
    shared: list[Column] = exchange.all_gather(columns)[0]
    return list({column.expression: column for column in shared}.values())


def _read(text: str) -> Column:
    try:
        return Column(str(load(text, source="--backend")))
    except HpccommError as error:
        return Column(text, dropped=error.summary)


def build(columns: Sequence[Column], *, start_s: float, timeout_s: float) -> None:
    """Make each column's group, or note why there is none; collective.

    Args:
        columns: The columns.
        start_s: Deadline in seconds for making a group.
        timeout_s: Deadline in seconds of its operations.
    """
    for column in columns:
        if column.dropped is not None:
            continue
        try:
            options = Options(column.expression)
            limit = timedelta(seconds=start_s)
            column.group = dist.new_group(timeout=limit, backend=NAME, pg_options=options)
            column.group.set_timeout(timedelta(seconds=timeout_s))
        except HpccommError as error:
            column.dropped = error.summary
