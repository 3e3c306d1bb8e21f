"""Bytes that leave a node, for hierarchies: computed from expression, topology and collective. Pure.

The exchange across k nodes is taken for one that moves no more than it must: a node sends the collective's busbw
factor with k for n, times the size. An inner backend such as `direct` in one shot moves more. Where ranks send to the
next one, a node sends the size once for each of its ranks whose next one is on another node.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hpccomm.bench.collectives import Collective
from hpccomm.expression import Expression

if TYPE_CHECKING:
    from hpccomm.topology import Topology

WRAPPERS = frozenset({"checked", "faulty"})
"""Combinators that hand every operation on to their first argument."""


def unwrapped(expression: Expression) -> Expression:
    """Give the backend inside wrappers."""
    while expression.name in WRAPPERS and expression.arguments:
        expression = expression.arguments[0]
    return expression


def wire_factor(collective: Collective, expression: Expression, topology: Topology) -> float | None:
    """Give the bytes that leave a node over the bytes of the operation.

    Returns:
        That of the node that sends most; None for backends that are no hierarchy, for a single node, and without data.
    """
    expression = unwrapped(expression)
    if expression.name != "hierarchical" or collective.factor is None:
        return None
    nodes = topology.by(expression.keywords.get("by", "node")).nodes  # type: ignore[arg-type]
    if len(set(nodes)) == 1:
        return None
    if collective.to_next:
        left = Counter(node for node, after in zip(nodes, (*nodes[1:], nodes[0]), strict=True) if node != after)
        return max(left.values())
    return collective.factor(len(set(nodes)))
