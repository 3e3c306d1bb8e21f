"""Which algorithm a backend runs for a collective: one that does not serve it has another one stand in. Pure."""

from __future__ import annotations

from hpccomm.algorithms import ALGORITHMS, serving
from hpccomm.bench.wire import unwrapped
from hpccomm.expression import Expression

_CARRIED = frozenset({"sendrecv", "barrier"})
"""What a backend made of schedules leaves to its carrier."""


def algorithm(expression: Expression, collective: str) -> str | None:
    """Give the name of the algorithm; None where a library chooses or several run."""
    name = _named(expression)
    return None if name is None or collective in _CARRIED else serving(name, collective).name


def stand_in(expression: Expression, collective: str) -> str | None:
    """Say what runs instead of the algorithm that the expression names, if so."""
    name, runs, inside = _named(expression), algorithm(expression, collective), unwrapped(expression)
    if name is None or name == runs:
        return None
    if runs is None:
        return f"its {collective} is that of {inside.arguments[0]}"
    return f"{inside.name} has no {collective}: {runs} is measured"


def _named(expression: Expression) -> str | None:
    expression = unwrapped(expression)
    if expression.name not in ALGORITHMS:
        return None
    in_two_shots = expression.name == "direct" and expression.keywords.get("shots") == 2
    return "pairwise" if in_two_shots else expression.name
