"""Inputs of every rank by formula, and what a reduction of them must give, computed in int64 or float64.

Every rank knows all ranks' inputs, so expected values never come from communication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.distributed import ReduceOp

Op = ReduceOp.RedOpType

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
ARITHMETIC = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
OPS = (*ARITHMETIC, *BITWISE)

_FOLD: dict[Op, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    ReduceOp.SUM: torch.add,
    ReduceOp.AVG: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_BOOL_FOLD = _FOLD | {
    op: torch.logical_or if op in (ReduceOp.SUM, ReduceOp.MAX) else torch.logical_and
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT, ReduceOp.MIN)
}


def has_meaning(op: Op, dtype: torch.dtype) -> bool:
    """Tell whether hpccomm defines this reduction."""
    if dtype == torch.bool:
        return op != ReduceOp.AVG
    if dtype.is_complex:
        return op in (ReduceOp.SUM, ReduceOp.AVG)
    if op in BITWISE:
        return not dtype.is_floating_point
    return (op, dtype) != (ReduceOp.AVG, torch.uint64)


def wide(dtype: torch.dtype) -> torch.dtype:
    """Give the dtype in which expected values are computed."""
    if dtype.is_complex:
        return torch.complex128
    return torch.float64 if dtype.is_floating_point else torch.int64


def integers(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Give integer-valued input whose sums and products over 8 ranks are exact in every dtype."""
    values = (torch.arange(count) * 5 + rank * 3) % 4
    if dtype == torch.bool:
        return values > 0
    return torch.complex(values.double(), 2.0 - values.double()).to(dtype) if dtype.is_complex else values.to(dtype)


def reals(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Give normally distributed input, the same on every call."""
    return torch.randn(count, generator=torch.Generator().manual_seed(rank + 1), dtype=torch.float64).to(dtype)


def reduced(op: Op, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Reduce all ranks' inputs in the wide dtype; averages of integers are truncated towards zero."""
    dtype = inputs[0].dtype
    fold = (_BOOL_FOLD if dtype == torch.bool else _FOLD)[op]
    total, *rest = (one if dtype == torch.bool else one.to(wide(dtype)) for one in inputs)
    for one in rest:
        total = fold(total, one)
    if op == ReduceOp.AVG and dtype.is_complex:
        return torch.view_as_complex(torch.view_as_real(total) / len(inputs))
    if op == ReduceOp.AVG:
        return torch.div(total, len(inputs), rounding_mode=None if dtype.is_floating_point else "trunc")
    return total


def bound(inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Give how far a sum may be off: n * eps * sum(abs(x_i)), for n ranks and the dtype's eps."""
    eps = torch.finfo(inputs[0].dtype).eps
    return len(inputs) * eps * torch.stack([one.double().abs() for one in inputs]).sum(0)
