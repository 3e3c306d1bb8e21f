"""Tensors on their way through a reduction: loaded into what the backend reduces, scaled, and delivered.

It carries out the `Plan`s of the support table and knows no backend.
"""

from __future__ import annotations

import torch

from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.layout import dense, is_dense
from hpccomm.backends.support import INTEGERS, Plan

Factor = float | torch.Tensor | None


_SIGN_BIT = -(2**63)


def load(tensor: torch.Tensor, plan: Plan, factor: Factor) -> torch.Tensor:
    """Give a tensor as the flat dense buffer that a plan reduces.

    Args:
        tensor: The user's tensor, of any layout.
        plan: How it is reduced.
        factor: What PREMUL_SUM multiplies by; else None.

    Returns:
        A one-dimensional tensor of ``plan.carry``, complex numbers counting twice: the user's own memory where that
        is dense and of this dtype already, else new memory.
    """
    flat = _seen(dense(tensor), plan).reshape(-1)
    if plan.ranks_floats:
        return _keys(flat, plan.op).to(plan.carry)
    flat = flat.to(plan.carry)
    if plan.flips:
        return flat ^ _SIGN_BIT
    if isinstance(factor, torch.Tensor):
        factor = factor.to(flat)  # of another dtype it could change the buffer's
    return flat if factor is None else flat * factor


def scale(buffer: torch.Tensor, plan: Plan, size: int) -> None:
    """Turn the sum in a buffer into the average over `size` ranks, in place, where the plan asks for one."""
    if plan.asked != ReduceOp.AVG:
        return
    if plan.carry in INTEGERS:
        torch.div(buffer, size, rounding_mode="trunc", out=buffer)
    else:
        buffer.div_(size)


def deliver(buffer: torch.Tensor, tensor: torch.Tensor, plan: Plan) -> None:
    """Store a reduced buffer in the user's tensor, rounded once to its dtype."""
    if buffer.data_ptr() == tensor.data_ptr() and is_dense(tensor) and not plan.flips:
        return
    if plan.ranks_floats:
        buffer = _floats(buffer, plan.dtype)
    narrow = (buffer ^ _SIGN_BIT if plan.flips else buffer).to(plan.seen_as)
    if tensor.is_complex():
        narrow = torch.view_as_complex(narrow.view(-1, 2))
    elif tensor.dtype != plan.seen_as:
        narrow = narrow.view(tensor.dtype)
    tensor.detach().copy_(narrow.view(tensor.shape))


def _keys(floats: torch.Tensor, op: Op) -> torch.Tensor:
    """Give integers in the order of some floats; NaN is the first one for MIN and the last one for MAX."""
    wide, kind = _wide(floats.dtype)
    values = floats.to(wide)
    limits = torch.iinfo(kind)
    ordered = _mirrored(values.view(kind))
    return ordered.masked_fill_(values.isnan(), limits.max if op == ReduceOp.MAX else limits.min)


def _floats(keys: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Give the floats whose keys these are; the last and the first integer are NaNs."""
    wide, kind = _wide(dtype)
    return _mirrored(keys.to(kind)).view(wide)


def _wide(dtype: torch.dtype) -> tuple[torch.dtype, torch.dtype]:
    return (torch.float64, torch.int64) if dtype == torch.float64 else (torch.float32, torch.int32)


def _mirrored(bits: torch.Tensor) -> torch.Tensor:
    """Turn the order of the negative ones around: floats are stored as sign and magnitude."""
    limits = torch.iinfo(bits.dtype)
    return bits ^ ((bits >> limits.bits - 1) & limits.max)


def _seen(tensor: torch.Tensor, plan: Plan) -> torch.Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor if tensor.dtype == plan.seen_as else tensor.view(plan.seen_as)
