"""What is known of a backend in a table before it runs: its algorithm, and what it moves between nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from hpccomm.backends.support import plan
from hpccomm.bench import served
from hpccomm.bench.candidates import Column
from hpccomm.bench.case import OPERATORS
from hpccomm.bench.plan import Table
from hpccomm.bench.rows import Cell
from hpccomm.bench.wire import wire_factor
from hpccomm.errors import UnsupportedError
from hpccomm.expression import parse
from hpccomm.topology import Topology


@dataclass(frozen=True)
class Facts:
    """What belongs to every row of a backend in a table.

    Attributes:
        algorithm: Name of the schedule that it runs; None where a library chooses or several run.
        remark: What the reader must know of it, or None.
        wire: Bytes that leave a node over bytes of the operation; None for backends that are no hierarchy.
    """

    algorithm: str | None
    remark: str | None
    wire: float | None

    def noted(self, cell: Cell, size: int) -> Cell:
        """Give a cell of this size together with these facts."""
        wire_bytes = None if self.wire is None else round(self.wire * size)
        return replace(cell, algorithm=self.algorithm, wire_bytes=wire_bytes)


def facts(table: Table, column: Column, topology: Topology) -> Facts:
    """Find what is known of a column."""
    name = table.collective.name
    if column.group is None:
        return Facts(None, f"not rebuilt: {column.dropped}", None)
    expression = parse(column.expression)
    wire = wire_factor(table.collective, expression, topology)
    return Facts(
        served.algorithm(expression, name),
        served.stand_in(expression, name),
        None if wire is None else wire * _widening(table, column),
    )


def _widening(table: Table, column: Column) -> float:
    """Give how many times as wide elements are while the column's backend reduces them."""
    if table.op is None:
        return 1.0
    dtype: torch.dtype = getattr(torch, table.dtype)
    support = column.group._runner.backend.support
    try:
        return plan(support, OPERATORS[table.op], dtype, name=column.expression).carry.itemsize / dtype.itemsize
    except UnsupportedError:  # which the first call will tell
        return 1.0
