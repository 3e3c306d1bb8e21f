"""The support table: what a backend reduces itself, and how everything else is brought to that.

A backend states its own abilities in a `Support`; `plan` turns an (operator, dtype) pair asked for by a user into
what the backend is asked for. Errors, tests, README and the benchmark read the same table. It knows no backend.

Meaning of the operators, the same on every backend:

* AVG is the sum over all ranks, divided once by the group's size. Averages of 16-bit floats are summed in float32
  and those of integers in int64, then truncated towards zero.
* MIN and MAX of floats are those of IEEE 754: a NaN on any rank makes the result NaN on all, and -0 is below 0. They
  are found among integers in the order of the floats, since libraries drop NaNs on some ranks and not on others.
* bool: SUM and MAX are "or", PRODUCT and MIN are "and"; the result stays bool. Integer sums wrap.
* complex: SUM, AVG and PREMUL_SUM only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.errors import UnsupportedError

ARITHMETIC = frozenset({ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX})
BITWISE = frozenset({ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR})

_HALVES = (torch.float16, torch.bfloat16)
_FLOAT8 = tuple(
    getattr(torch, name)
    for name in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
    if hasattr(torch, name)
)
FLOATS = frozenset({torch.float64, torch.float32, *_HALVES, *_FLOAT8})
SIGNED = frozenset({torch.int8, torch.int16, torch.int32, torch.int64})
UNSIGNED = frozenset({torch.uint8, torch.uint16, torch.uint32, torch.uint64})
INTEGERS = SIGNED | UNSIGNED

# Dtypes that hold every value of the key, in the order in which they are tried; int64 holds the bits of uint64.
WIDER: Mapping[torch.dtype, tuple[torch.dtype, ...]] = {
    **dict.fromkeys((*_HALVES, *_FLOAT8), (torch.float32, torch.float64)),
    torch.float32: (torch.float64,),
    torch.int8: (torch.int16, torch.int32, torch.int64),
    torch.uint8: (torch.int16, torch.int32, torch.int64),
    torch.int16: (torch.int32, torch.int64),
    torch.uint16: (torch.int32, torch.int64),
    torch.int32: (torch.int64,),
    torch.uint32: (torch.int64,),
    torch.uint64: (torch.int64,),
}

# Dtypes reduced as another dtype of the same bytes.
_SEEN_AS: Mapping[torch.dtype, torch.dtype] = {
    torch.bool: torch.uint8,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
_BOOL_OPS: Mapping[Op, Op] = {
    ReduceOp.SUM: ReduceOp.BOR,
    ReduceOp.MAX: ReduceOp.BOR,
    ReduceOp.PRODUCT: ReduceOp.BAND,
    ReduceOp.MIN: ReduceOp.BAND,
    **{op: op for op in BITWISE},
}
# What does the same to numbers that are 0 or 1.
_OF_BITS: Mapping[Op, Op] = {ReduceOp.BOR: ReduceOp.MAX, ReduceOp.BAND: ReduceOp.MIN}
_SUMMED = frozenset({ReduceOp.AVG, ReduceOp.PREMUL_SUM})


@dataclass(frozen=True)
class Support:
    """What a backend does by itself.

    Attributes:
        devices: Device types whose tensors it takes.
        reductions: The operators it reduces, for each dtype; only those of `ARITHMETIC` and `BITWISE`.
        rounding: How often a sum in a given float dtype is rounded, in words; its error stays within
            n * eps * sum(abs(x_i)) for n ranks and the dtype's eps.
        deadline: How an operation's deadline is held, in words.
    """

    devices: frozenset[str]
    reductions: Mapping[torch.dtype, frozenset[Op]]
    rounding: str
    deadline: str

    def joined(self, other: Support) -> Support:
        """Give what two backends can do that reduce one after the other."""
        both = self.reductions.keys() & other.reductions.keys()
        return Support(
            self.devices & other.devices,
            {dtype: self.reductions[dtype] & other.reductions[dtype] for dtype in both},
            "; ".join(dict.fromkeys((self.rounding, other.rounding))),
            "; ".join(dict.fromkeys((self.deadline, other.deadline))),
        )

    def without(self, dtypes: frozenset[torch.dtype]) -> Support:
        """Give the same table without some dtypes, so that they are reduced in a wider one."""
        left = {dtype: ops for dtype, ops in self.reductions.items() if dtype not in dtypes}
        return Support(self.devices, left, self.rounding, self.deadline)


HALVES = frozenset(_HALVES)


@dataclass(frozen=True)
class Plan:
    """How one reduction is carried out.

    Attributes:
        dtype: The dtype of the user's tensor.
        asked: The user's operator: AVG divides afterwards, PREMUL_SUM multiplies before.
        seen_as: The dtype as which the user's bytes are read; `dtype` itself but for bool and complex.
        carry: The dtype that the backend reduces; wider than `seen_as` or the same.
        op: The operator that the backend is asked for.
        direct: True when the user's own bytes can be reduced in place, with nothing before or after.
        flips: True when the sign bit is flipped on the way, so that int64 orders the values of uint64.
        ranks_floats: True when floats are reduced as integers in the same order.
        width: Elements of `seen_as` that make one of `dtype`.
    """

    dtype: torch.dtype
    asked: Op
    seen_as: torch.dtype
    carry: torch.dtype
    op: Op

    @cached_property
    def direct(self) -> bool:  # noqa: D102
        return self.dtype == self.carry and self.asked not in _SUMMED

    @cached_property
    def ranks_floats(self) -> bool:  # noqa: D102
        return _is_choice_of_floats(self.asked, self.dtype)

    @cached_property
    def flips(self) -> bool:  # noqa: D102
        return self.dtype == torch.uint64 != self.carry and self.op in (ReduceOp.MIN, ReduceOp.MAX)

    @cached_property
    def width(self) -> int:  # noqa: D102
        return 2 if self.dtype.is_complex else 1


def plan(support: Support, op: Op, dtype: torch.dtype, *, name: str) -> Plan:
    """Find how a backend reduces a dtype with an operator.

    Args:
        support: The backend's own abilities.
        op: The operator asked for.
        dtype: The dtype of the user's tensor.
        name: The backend's expression, for the error.

    Raises:
        UnsupportedError: There is no exact way; the text says what the backend offers instead.
    """
    seen_as = _SEEN_AS.get(dtype, dtype)
    asked = _BOOL_OPS.get(op) if dtype == torch.bool else op
    if asked is None or not _has_meaning(asked, dtype):
        raise _refusal(support, op, dtype, name)
    primitive = ReduceOp.SUM if asked in _SUMMED else asked
    if dtype == torch.bool and primitive not in support.reductions.get(seen_as, frozenset()):
        primitive = asked = _OF_BITS.get(asked, asked)
    for carry in _carriers(seen_as, asked):
        if primitive in support.reductions.get(carry, frozenset()):
            same_width = (carry, dtype) == (torch.int64, torch.uint64)
            return Plan(dtype, asked, carry if same_width else seen_as, carry, primitive)
    raise _refusal(support, op, dtype, name)


def _has_meaning(op: Op, dtype: torch.dtype) -> bool:
    if dtype == torch.bool:
        return True
    if dtype.is_complex:
        return op in {ReduceOp.SUM, *_SUMMED}
    if dtype in FLOATS:
        return op in ARITHMETIC | _SUMMED
    return (
        dtype in INTEGERS
        and op in ARITHMETIC | BITWISE | {ReduceOp.AVG}
        and (op, dtype) != (ReduceOp.AVG, torch.uint64)
    )


def _is_choice_of_floats(op: Op, dtype: torch.dtype) -> bool:
    return op in (ReduceOp.MIN, ReduceOp.MAX) and dtype in FLOATS


def _carriers(dtype: torch.dtype, op: Op) -> tuple[torch.dtype, ...]:
    if op == ReduceOp.AVG and dtype in INTEGERS:
        return (torch.int64,)
    if _is_choice_of_floats(op, dtype):
        return (torch.int64,) if dtype == torch.float64 else (torch.int32, torch.int64)
    wider = WIDER.get(dtype, ())
    must_widen = dtype in _FLOAT8 or (op in _SUMMED and dtype in HALVES)
    return wider if must_widen else (dtype, *wider)


def _refusal(support: Support, op: Op, dtype: torch.dtype, name: str) -> UnsupportedError:
    offered = [dtype_name(other) for other, ops in support.reductions.items() if op in ops]
    return UnsupportedError(
        f"reduce {dtype_name(dtype)} with {op.name} over {name}",
        found=f"{op.name} is reduced there for {', '.join(sorted(offered)) or 'no dtype'} and what fits into them",
        remedy="convert the tensor, take another operator, or another backend",
        everywhere=True,
    )


def dtype_name(dtype: torch.dtype) -> str:
    """Give a dtype's name without the module: ``float32``."""
    return str(dtype).removeprefix("torch.")
