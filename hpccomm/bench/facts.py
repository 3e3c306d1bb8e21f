"""What is known of a backend in a table before it runs: its algorithm, and the bytes that leave a node.

The exchange across k nodes is taken for one that moves no more than it must: a node sends the collective's busbw
factor with k for n, times the size. An inner backend such as `direct` in one shot moves more. Where ranks send to the
next one, a node sends the size once for each of its ranks whose next one is on another node.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import torch

from hpccomm.algorithms import ALGORITHMS, serving
from hpccomm.backends.support import plan
from hpccomm.bench.candidates import Candidate
from hpccomm.bench.case import OPERATORS
from hpccomm.bench.collectives import Collective
from hpccomm.bench.rows import Cell
from hpccomm.bench.tables import Table
from hpccomm.errors import UnsupportedError
from hpccomm.expression import Expression, parse
from hpccomm.topology import Topology

_WRAPPERS = frozenset({"checked", "faulty"})
"""Combinators that hand every operation on to their first argument."""


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


def facts(table: Table, candidate: Candidate, topology: Topology) -> Facts:
    """Find what is known of a candidate."""
    if candidate.group is None:
        return Facts(None, f"not rebuilt: {candidate.dropped}", None)
    expression = parse(candidate.expression)
    wire = wire_factor(table.collective, expression, topology)
    return Facts(
        algorithm(expression, table.collective),
        stand_in(expression, table.collective),
        None if wire is None else wire * _widening(table, candidate),
    )


def algorithm(expression: Expression, collective: Collective) -> str | None:
    """Give the name of the algorithm that runs; None where a library chooses or several run."""
    name = _named(expression)
    return None if name is None or collective.carried else serving(name, collective.made_of or collective.name).name


def stand_in(expression: Expression, collective: Collective) -> str | None:
    """Say what runs instead of the algorithm that the expression names, if so."""
    name, runs, inside = _named(expression), algorithm(expression, collective), _unwrapped(expression)
    if name is None or name == runs:
        return None
    if runs is None:
        return f"its {collective.name} is that of {inside.arguments[0]}"
    return f"{inside.name} has no {collective.name}: {runs} is measured"


def wire_factor(collective: Collective, expression: Expression, topology: Topology) -> float | None:
    """Give the bytes that leave a node over the bytes of the operation, if elements travel as they are.

    Returns:
        That of the node that sends most; None for backends that are no hierarchy, for a single node, without data, and
        for what a hierarchy leaves to one of its levels.
    """
    expression = _unwrapped(expression)
    if expression.name != "hierarchical" or collective.factor is None or not collective.by_levels:
        return None
    nodes = topology.by(expression.keywords.get("by", "node")).nodes  # type: ignore[arg-type]
    if len(set(nodes)) == 1:
        return None
    if collective.to_next:
        left = Counter(node for node, after in zip(nodes, (*nodes[1:], nodes[0]), strict=True) if node != after)
        return max(left.values())
    return collective.factor(len(set(nodes)))


def _unwrapped(expression: Expression) -> Expression:
    while expression.name in _WRAPPERS and expression.arguments:
        expression = expression.arguments[0]
    return expression


def _named(expression: Expression) -> str | None:
    """Give the algorithm that the expression names, if it does."""
    expression = _unwrapped(expression)
    if expression.name not in ALGORITHMS:
        return None
    in_two_shots = expression.name == "direct" and expression.keywords.get("shots") == 2
    return "pairwise" if in_two_shots else expression.name


def _widening(table: Table, candidate: Candidate) -> float:
    """Give how many times as wide elements are while the candidate's backend reduces them."""
    if table.op is None:
        return 1.0
    dtype: torch.dtype = getattr(torch, table.dtype)
    support = candidate.group._runner.backend.support
    try:
        return plan(support, OPERATORS[table.op], dtype, name=candidate.expression).carry.itemsize / dtype.itemsize
    except UnsupportedError:  # which the first call will tell
        return 1.0
