"""The names of the backends and where each is made; free of torch, so that a wrong name is refused at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hpccomm.algorithms import ALGORITHMS
from hpccomm.errors import ExpressionError
from hpccomm.expression import Expression


class Row(NamedTuple):
    """A backend that hpccomm brings.

    Attributes:
        builder: What makes it, as ``module:name``.
        backends: How many of its arguments, from the first on, are backends; None for all. The rest are bare words.
    """

    builder: str
    backends: int | None = None


BACKENDS = {
    "auto": Row("hpccomm.backends.select:build_auto"),
    "checked": Row("hpccomm.backends.checked:build_checked"),
    "direct": Row("hpccomm.backends.scheduled:build_direct"),
    "failover": Row("hpccomm.backends.failover:FailoverBackend"),
    "faulty": Row("hpccomm.backends.faulty:FaultyBackend", backends=1),
    "gloo": Row("hpccomm.backends.gloo:GlooBackend"),
    "hierarchical": Row("hpccomm.backends.hierarchical:HierarchicalBackend"),
    "mpi4py": Row("hpccomm.backends.strict:build_mpi"),
    "nccl": Row("hpccomm.backends.nccl:NcclBackend"),
    "nccl_cupy": Row("hpccomm.backends.nccl_cupy:build_nccl_cupy"),
    "shm": Row("hpccomm.backends.shm:ShmBackend"),
}


def unknown(expression: Expression, known: Sequence[str]) -> ExpressionError:
    """Give the error of an expression whose own name is that of no backend."""
    return ExpressionError(
        f"build backend {expression}",
        found=f"no backend is called {expression.name!r}",
        remedy=f"there are {', '.join(known)}",
        everywhere=True,
    )


def check_names(expression: Expression) -> None:
    """Refuse an expression that names, at any depth, a backend that hpccomm does not bring.

    Raises:
        ExpressionError: It names one.
    """
    known = sorted({*BACKENDS, *ALGORITHMS})
    if expression.name not in known:
        raise unknown(expression, known)
    for inner in within(expression):
        check_names(inner)


def within(expression: Expression) -> tuple[Expression, ...]:
    """Give the first arguments of an expression, those that are backends; all of one whose name has no row here."""
    row = BACKENDS.get(expression.name)
    return expression.arguments[: row.backends if row else None]
