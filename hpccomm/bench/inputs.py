"""What goes into a collective and what must come out, by formula: patterns of integers and of random floats.

A pattern is a short row that a tensor holds over and over. Patterns of integers are such that every partial
reduction, in whatever order, is exact in the dtype: results are compared for equality. Expectations are computed in
int64 or float64 from the ranks' inputs, which every rank knows; no communication is involved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

# Primes, so that no power-of-two share of a tensor begins where another one does.
PERIOD = 251
RANDOM_PERIOD = 8191
_SEED = 20_240_229
_ROWS = 128
_DOUBLINGS = 6  # 2**6 fits every dtype, a product of more factors would not


@dataclass(frozen=True)
class Range:
    """The integers that a dtype holds.

    Attributes:
        largest: All integers from 0 to this one are exact.
        signed: Whether negative ones are, too.
    """

    largest: int
    signed: bool

    @classmethod
    def of(cls, dtype: torch.dtype) -> Range:
        """Give the range of a dtype."""
        if dtype.is_floating_point:
            return cls(int(2 / torch.finfo(dtype).eps), True)
        return cls(torch.iinfo(dtype).max, dtype.is_signed)


def _scattered(row: Tensor, place: Tensor) -> Tensor:
    """Give a number from 0 to 65535 for every row and place, without any period."""
    return ((row * PERIOD + place) * 2_654_435_761 % (1 << 32)) >> 16


def _terms(rank: Tensor, place: Tensor, ranks: int, held: Range) -> Tensor:
    """Give numbers from 0 whose sum over all ranks is exact; of many ranks only some give a 1."""
    modulus = min(101, held.largest // ranks + 1)
    if modulus > 1:
        return _scattered(rank, place) % modulus
    return ((rank + place) % ranks < held.largest).long()


def _factors(rank: Tensor, place: Tensor, ranks: int, held: Range) -> Tensor:
    return 1 + ((rank + place) % (ranks + 1) < min(ranks, _DOUBLINGS)).long()


def _distinct(rank: Tensor, place: Tensor, ranks: int, held: Range) -> Tensor:
    return _scattered(rank, place) % 101 - (50 if held.signed else 0)


def _balanced(rank: Tensor, place: Tensor, ranks: int, held: Range) -> Tensor:
    """Give numbers from 0 to 8 whose average over all ranks is whole: ranks from both ends outweigh each other."""
    mirror = ranks - 1 - rank
    return 2 + place % 5 + (mirror - rank).sign() * (_scattered(torch.minimum(rank, mirror), place) % 3)


@dataclass(frozen=True)
class _Operator:
    inputs: Callable[[Tensor, Tensor, int, Range], Tensor]
    reduce: Callable[[Tensor], Tensor]


_OPERATORS = {
    "sum": _Operator(_terms, lambda table: table.sum(0)),
    "prod": _Operator(_factors, lambda table: table.prod(0)),
    "min": _Operator(_distinct, lambda table: table.amin(0)),
    "max": _Operator(_distinct, lambda table: table.amax(0)),
    "avg": _Operator(_balanced, lambda table: table.sum(0) // len(table)),
}


def integers(op: str | None, ranks: int, held: Range) -> Tensor:
    """Give all ranks' inputs for an operator, or for a collective that has none.

    Returns:
        int64, ranks x PERIOD; different from rank to rank and from element to element.
    """
    rank, place = torch.arange(ranks).unsqueeze(1), torch.arange(PERIOD)
    return _OPERATORS[op or "max"].inputs(rank, place, ranks, held)


def reduced(op: str | None, table: Tensor) -> Tensor:
    """Reduce all ranks' inputs in int64; without an operator the result means nothing."""
    return _OPERATORS[op or "max"].reduce(table)


def random_row(rank: int, dtype: torch.dtype) -> Tensor:
    """Give one rank's random input: RANDOM_PERIOD normally distributed numbers, rounded to the dtype."""
    generator = torch.Generator().manual_seed(_SEED + rank)
    return torch.randn(RANDOM_PERIOD, generator=generator).to(dtype)


@cache
def random_sum(op: str, ranks: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Give the sum or average of all ranks' random inputs, and how far a result may be from it.

    Returns:
        Two rows in float64, kept for the next call; the second is n * eps * sum(abs(x_i)), divided by n for an average.
    """
    total, magnitude = torch.zeros(2, RANDOM_PERIOD, dtype=torch.float64)
    for rank in range(ranks):
        row = random_row(rank, dtype).double()
        total += row
        magnitude += row.abs()
    bound = ranks * torch.finfo(dtype).eps * magnitude
    return (total, bound) if op == "sum" else (total / ranks, bound / ranks)


def has_random_check(op: str | None, dtype: torch.dtype) -> bool:
    """Tell whether results for random inputs have a bound: sums and averages of floats."""
    return op in ("sum", "avg") and dtype.is_floating_point


def fill(tensor: Tensor, pattern: Tensor) -> None:
    """Fill a one-dimensional tensor with a pattern over and over, rounded to its dtype."""
    period = len(pattern)
    whole = tensor.numel() // period * period
    tensor[:whole].view(-1, period).copy_(pattern)
    tensor[whole:].copy_(pattern[: tensor.numel() - whole])


def count_different(tensor: Tensor, pattern: Tensor, bound: Tensor | None = None) -> int:
    """Count the elements of a one-dimensional tensor that are not those of a pattern.

    Args:
        tensor: The result.
        pattern: What it must hold over and over.
        bound: How far each element may be from the pattern's; None for not at all.
    """
    period, exact = len(pattern), pattern.to(tensor.dtype).to(tensor.device)
    whole = tensor.numel() // period * period
    rows = [tensor[:whole].view(-1, period), tensor[whole:].view(1, -1)]
    if bound is None:
        return sum(int((part != exact[: part.shape[1]]).sum()) for part in rows)
    # in pieces, as their float64 copies need memory
    pieces = [part[at : at + _ROWS] for part in rows for at in range(0, len(part), _ROWS)]
    return sum(_count_beyond(piece, pattern, bound) for piece in pieces)


def _count_beyond(rows: Tensor, pattern: Tensor, bound: Tensor) -> int:
    width = rows.shape[1]
    exact, most = (row[:width].to(rows.device) for row in (pattern, bound))
    within = (rows.double() - exact).abs() <= most
    return int((~within).sum())
