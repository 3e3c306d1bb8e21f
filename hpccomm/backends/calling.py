"""What torch's callers ask for, out of the forms that its versions have for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.reduction import Factor

# Each operator as the one object that tables are keyed by: torch makes a new, slowly compared one at every access.
_OPS: dict[int, Op] = {
    int(op): op  # type: ignore[call-overload]
    for op in (
        ReduceOp.SUM,
        ReduceOp.AVG,
        ReduceOp.PRODUCT,
        ReduceOp.MIN,
        ReduceOp.MAX,
        ReduceOp.BAND,
        ReduceOp.BOR,
        ReduceOp.BXOR,
        ReduceOp.PREMUL_SUM,
    )
}


def listed(tensors: Any) -> Sequence[torch.Tensor]:
    """Give tensors as a sequence."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def root_of(options: Any) -> int:
    """Give the root that options ask for."""
    return 0 if options is None else int(options.rootRank)


def operator_of(options: Any) -> tuple[Op, Factor]:
    """Give the operator that options ask for, and the factor of PREMUL_SUM."""
    if options is None:
        return ReduceOp.SUM, None
    asked = getattr(options, "reduceOp", options)
    op = _OPS[hash(asked)]  # its number, whether it is a bare one or one with a factor
    return op, asked.__getstate__()[1] if op is ReduceOp.PREMUL_SUM else None
