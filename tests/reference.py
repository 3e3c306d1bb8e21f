"""Inputs of every rank by formula, and what a reduction of them must give, computed in int64 or float64.

Every rank knows all ranks' inputs, so expected values never come from communication.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.distributed import ReduceOp

Op = ReduceOp.RedOpType

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64)
COMPLEX = (torch.complex64, torch.complex128)
DTYPES = (*FLOATS, *INTEGERS, torch.bool, *COMPLEX)
ARITHMETIC = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.AVG)
BITWISE = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
OPS = (*ARITHMETIC, *BITWISE)

_FOLD: dict[Op, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    ReduceOp.SUM: torch.add,
    ReduceOp.AVG: torch.add,
    ReduceOp.PREMUL_SUM: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_ORDERS = (ReduceOp.MIN, ReduceOp.MAX)
_SIGN_BIT = -(2**63)
_BOOL_FOLD = _FOLD | {
    op: torch.logical_or if op in (ReduceOp.SUM, ReduceOp.MAX) else torch.logical_and
    for op in (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.PRODUCT, ReduceOp.MIN)
}


def has_meaning(op: Op, dtype: torch.dtype) -> bool:
    """Tell whether hpccomm defines this reduction."""
    if dtype == torch.bool:
        return op not in (ReduceOp.AVG, ReduceOp.PREMUL_SUM)
    if dtype.is_complex:
        return op in (ReduceOp.SUM, ReduceOp.AVG, ReduceOp.PREMUL_SUM)
    if op in BITWISE:
        return not dtype.is_floating_point
    if op == ReduceOp.PREMUL_SUM:
        return dtype.is_floating_point
    return (op, dtype) != (ReduceOp.AVG, torch.uint64)


def pairs(*, every: bool) -> list[tuple[Op, torch.dtype]]:
    """Pair operators with dtypes: all of them, or every operator with int32 and every dtype with SUM and AVG.

    The latter are enough where the code under test only moves what other code, which gets all pairs, makes of them.
    """
    few = (ReduceOp.SUM, ReduceOp.AVG)
    every_pair = itertools.product(OPS, DTYPES)
    return [(op, dtype) for op, dtype in every_pair if every or op in few or dtype == torch.int32]


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
    """Give normally distributed input, the same on every call and device."""
    generator = torch.Generator().manual_seed(rank + 1)
    drawn = torch.randn(count, generator=generator, dtype=torch.float64, device="cpu")
    return drawn.to(torch.get_default_device(), dtype)


def exact(op: Op, shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Draw input of which every partial result of an operator over 4 ranks is exact, or wraps, in the dtype."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    if dtype.is_complex:
        parts = [torch.randint(-3, 4, shape, generator=generator).double() for _ in range(2)]
        return torch.complex(*parts).to(dtype)
    if dtype.is_floating_point:
        largest = 2 if op == ReduceOp.PRODUCT else 3
        return torch.randint(-largest, largest + 1, shape, generator=generator).to(dtype)
    whole = torch.randint(-(2**63), 2**63 - 1, shape, generator=generator)
    if op == ReduceOp.AVG:
        whole = whole >> 4  # their sum is one of int64
    return whole.view(torch.uint64) if dtype == torch.uint64 else whole.to(dtype)


def normal(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Draw normally distributed floats or complex numbers."""
    drawn = torch.randn((*shape, 2), generator=generator, dtype=torch.float64)
    return (torch.view_as_complex(drawn) if dtype.is_complex else drawn[..., 0]).to(dtype)


def any_bits(shape: Sequence[int], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Draw elements of any bits, not-a-numbers among them; those of bool are 0 or 1."""
    if dtype == torch.bool:
        return torch.randint(0, 2, shape, generator=generator).bool()
    count = math.prod(shape) * dtype.itemsize
    return torch.randint(0, 256, (count,), generator=generator, dtype=torch.uint8).view(dtype).view(tuple(shape))


def reduced(op: Op, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
    """Reduce all ranks' inputs in the wide dtype; averages of integers are truncated towards zero."""
    dtype = inputs[0].dtype
    if dtype == torch.uint64 and op in _ORDERS:
        return reduced(op, [one.view(torch.int64) ^ _SIGN_BIT for one in inputs]) ^ _SIGN_BIT
    fold = (_BOOL_FOLD if dtype == torch.bool else _FOLD)[op]
    total, *rest = (one if dtype == torch.bool else one.to(wide(dtype)) for one in inputs)
    for one in rest:
        total = fold(total, one)
    if op == ReduceOp.AVG and dtype.is_complex:
        return torch.view_as_complex(torch.view_as_real(total) / len(inputs))
    if op == ReduceOp.AVG:
        return torch.div(total, len(inputs), rounding_mode=None if dtype.is_floating_point else "trunc")
    return total


def epsilon(dtype: torch.dtype) -> float:
    """Give the distance from 1 to the next larger number; torch.finfo states half of it for float8_e5m2fnuz."""
    if dtype.itemsize > 1:
        return torch.finfo(dtype).eps
    one = torch.ones(1).to(dtype).view(torch.uint8)
    return (one + 1).view(dtype).float().item() - 1


def bound(
    inputs: Sequence[torch.Tensor], op: Op = ReduceOp.SUM, *, dtype: torch.dtype | None = None, once: bool = False
) -> torch.Tensor:
    """Give how far a result of floats may be off: n * eps * sum(abs(x_i)) for a sum, n ranks and the dtype's eps.

    Args:
        inputs: Those of all ranks; of PREMUL_SUM, already multiplied.
        op: SUM, AVG, PREMUL_SUM or PRODUCT.
        dtype: Of the result; None for that of the inputs.
        once: Narrow floats are reduced in float32 and rounded once.
    """
    dtype, count = dtype or inputs[0].dtype, len(inputs)
    eps = epsilon(dtype)
    tiny = torch.finfo(dtype).smallest_normal * eps
    sizes = torch.stack([one.to(torch.float64).abs() for one in inputs])
    total = sizes.prod(0) if op == ReduceOp.PRODUCT else sizes.sum(0)
    if once and eps > torch.finfo(torch.float32).eps:
        result = reduced(op, inputs).abs()
        return eps / 2 * result + (count + 1) * torch.finfo(torch.float32).eps * total + tiny
    if op == ReduceOp.AVG:
        return (1 + 1 / count) * eps * total + tiny
    if op == ReduceOp.PREMUL_SUM:
        return (count + 1) * eps * total + tiny
    return count * eps * total + (tiny if op == ReduceOp.PRODUCT else 0)
