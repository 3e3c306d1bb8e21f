"""What torch reduces for us, where a backend only moves bytes: the dtypes, the operators, and the functions."""

from __future__ import annotations

from collections.abc import Callable

import torch

from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.support import ARITHMETIC, BITWISE, SIGNED

REDUCTIONS = {
    **dict.fromkeys((torch.float64, torch.float32), ARITHMETIC),
    **dict.fromkeys(SIGNED | {torch.uint8}, ARITHMETIC | BITWISE),
}
"""The operators for each dtype; what is missing is brought to these by the front door."""

COMBINE: dict[Op, Callable[[torch.Tensor, torch.Tensor], object]] = {
    ReduceOp.SUM: torch.Tensor.add_,
    ReduceOp.PRODUCT: torch.Tensor.mul_,
    ReduceOp.MIN: lambda into, other: torch.minimum(into, other, out=into),
    ReduceOp.MAX: lambda into, other: torch.maximum(into, other, out=into),
    ReduceOp.BAND: torch.Tensor.bitwise_and_,
    ReduceOp.BOR: torch.Tensor.bitwise_or_,
    ReduceOp.BXOR: torch.Tensor.bitwise_xor_,
}
"""Reduces the second tensor into the first."""
