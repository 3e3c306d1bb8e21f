"""The names of the backends and where each is made; free of torch, so that a wrong name is refused at once."""

from __future__ import annotations

from collections.abc import Sequence

from hpccomm.algorithms import ALGORITHMS
from hpccomm.errors import ExpressionError
from hpccomm.expression import Expression

BUILDERS = {
    "auto": "hpccomm.backends.select:build_auto",
    "checked": "hpccomm.backends.checked:build_checked",
    "direct": "hpccomm.backends.scheduled:build_direct",
    "failover": "hpccomm.backends.failover:FailoverBackend",
    "faulty": "hpccomm.backends.faulty:FaultyBackend",
    "gloo": "hpccomm.backends.gloo:GlooBackend",
    "hierarchical": "hpccomm.backends.hierarchical:HierarchicalBackend",
    "mpi4py": "hpccomm.backends.strict:build_mpi",
    "nccl": "hpccomm.backends.nccl:NcclBackend",
    "nccl_cupy": "hpccomm.backends.nccl_cupy:build_nccl_cupy",
    "shm": "hpccomm.backends.shm:ShmBackend",
}


_BACKENDS_WITHIN = {"faulty": 1}  # how many of the arguments are backends, where not all are


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
    known = sorted({*BUILDERS, *ALGORITHMS})
    if expression.name not in known:
        raise unknown(expression, known)
    for argument in expression.arguments[: _BACKENDS_WITHIN.get(expression.name)]:
        check_names(argument)
