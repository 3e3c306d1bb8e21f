"""One rank's place in a call: what it sends, where it receives, and what must come out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

from fuzz.case import Part
from fuzz.layouts import Placed, Shape, overlaps, stacked
from reference import any_bits, bound, exact, has_meaning, normal, reduced

FACTORS = (0.5, 2.0, -1.0, 0.25)
_WIDENED = (ReduceOp.AVG, ReduceOp.PREMUL_SUM)  # summed in float32 where 16-bit floats are not otherwise


@dataclass
class Written:
    """A tensor that is written.

    Attributes:
        placed: The tensor.
        expected: Its elements, of its dtype or wider.
        tolerance: How far each may be off, or None where they must be equal.
        everywhere: Whether all ranks must get the same bits.
    """

    placed: Placed
    expected: torch.Tensor
    tolerance: torch.Tensor | None = None
    everywhere: bool = False


@dataclass
class Call:
    """One rank's part in one call.

    Attributes:
        begin: Makes it and gives the works to wait for.
        written: What it must write.
        kept: What must stay as it is.
        objects: Gives what else it got, and what it must have got, once it has ended.
        is_barrier: Whether no rank may leave it before all have come.
    """

    begin: Callable[[], Sequence[Any]]
    written: list[Written] = field(default_factory=list)
    kept: list[Placed] = field(default_factory=list)
    objects: Callable[[], tuple[object, object]] = lambda: (None, None)
    is_barrier: bool = False

    @property
    def overlaps(self) -> bool:
        """Whether a tensor that all ranks might write has elements that share memory."""
        return any(one.placed.overlaps for one in self.written) or any(one.overlaps for one in self.kept)


class Seat:
    """What functions that make calls need.

    Args:
        part: The call.
        rank: This rank.
        size: The number of ranks.
        group: The process group.
        asynchronous: Whether the call may return before it has ended.
        adds_narrow: Whether the backend adds 16-bit floats as they are.
    """

    def __init__(self, part: Part, rank: int, size: int, *, group: Any, asynchronous: bool, adds_narrow: bool) -> None:
        self.part, self.rank, self.size = part, rank, size
        self.group, self.asynchronous = group, asynchronous
        self._adds_narrow = adds_narrow

    @property
    def ranks(self) -> range:
        """All ranks."""
        return range(self.size)

    @property
    def options(self) -> dict[str, Any]:
        """What torch.distributed's functions take."""
        return {"group": self.group, "async_op": self.asynchronous}

    def chosen(self, kind: type, **values: Any) -> Any:
        """Make options of the group's own methods."""
        made = kind()
        made.asyncOp = self.asynchronous
        for name, value in values.items():
            setattr(made, name, value)
        return made

    @property
    def op(self) -> Any:
        """The operator, with this rank's factor where it takes one."""
        if self.part.op != ReduceOp.PREMUL_SUM:
            return self.part.op
        return dist._make_nccl_premul_sum(self._factor(self.rank))

    def values(self, rank: int, block: int = 0, *, shape: Shape | None = None, read: bool = True) -> torch.Tensor:
        """Give a tensor of any rank: the same on all, whoever asks.

        Args:
            rank: Whose.
            block: Which of its tensors.
            shape: Its shape; None for the part's.
            read: Whether it is one that is only read.
        """
        part = self.part
        shape = part.shape if shape is None else shape
        generator = self._generator(part.salt * 1000 + rank * 50 + block)
        if part.values == "bits":
            made = any_bits(shape, part.dtype, generator)
        elif part.values == "normal":
            made = normal(shape, part.dtype, generator)
        else:
            made = exact(part.op, shape, part.dtype, generator)
        layout = (part.read if read else part.written)[rank]
        return made.flatten()[:1].expand(made.shape) if overlaps(layout, shape) else made

    def read(self, block: int = 0, *, shape: Shape | None = None) -> Placed:
        """Place a tensor of this rank that is only read."""
        return self.placed(self.values(self.rank, block, shape=shape))

    def whole(self, rank: int) -> Placed:
        """Place a tensor that holds a block for each rank."""
        blocks = [self.values(rank, block).reshape(-1) for block in self.ranks]
        return self.placed(torch.cat(blocks).view(stacked(self.part.shape, self.size)))

    def placed(self, values: torch.Tensor) -> Placed:
        """Place values that are only read."""
        return Placed(values, self.part.read[self.rank], self._noise())

    def reused(self, block: int = 0, *, shape: Shape | None = None) -> Placed:
        """Place a tensor of this rank that is read and written."""
        values = self.values(self.rank, block, shape=shape, read=False)
        return Placed(values, self.part.written[self.rank], self._noise())

    def empty(self, shape: Shape | None = None, dtype: torch.dtype | None = None) -> Placed:
        """Place a tensor that is only written."""
        noise, dtype = self._noise(), dtype or self.part.dtype
        layout, shape = self.part.written[self.rank], self.part.shape if shape is None else shape
        values = any_bits((1,) * len(shape) if overlaps(layout, shape) else shape, dtype, noise)
        return Placed(values.expand(shape), layout, noise)

    def total(self, placed: Placed, block: int = 0, *, shape: Shape | None = None, read: bool = True) -> Written:
        """Say what a reduction of all ranks' tensors must write.

        Args:
            placed: Where.
            block: Which tensor of every rank is reduced.
            shape: Its shape; None for the part's.
            read: Whether these tensors are only read.
        """
        part = self.part
        if not has_meaning(part.op, part.dtype):
            return Written(placed, placed.content)
        of = [self.values(rank, block, shape=shape, read=read) for rank in self.ranks]
        if part.op == ReduceOp.PREMUL_SUM:
            of = [_wide(one) * self._factor(rank) for rank, one in enumerate(of)]
        expected = reduced(part.op, of)
        if part.values != "normal" or part.op in (ReduceOp.MIN, ReduceOp.MAX):
            return Written(placed, expected.to(part.dtype))
        return Written(placed, expected, self._tolerance(of))

    def _tolerance(self, of: Sequence[torch.Tensor]) -> torch.Tensor:
        dtype, op = self.part.dtype, self.part.op
        once = not self._adds_narrow or dtype not in (torch.float16, torch.bfloat16) or op in _WIDENED
        parts = [torch.view_as_real(one) if one.is_complex() else one for one in of]
        return bound(parts, op, dtype=dtype.to_real(), once=once)

    def _factor(self, rank: int) -> float:
        return FACTORS[(rank + self.part.salt) % len(FACTORS)]

    def _noise(self) -> torch.Generator:
        return self._generator(self.part.salt * 1000 + 999 - self.rank)

    @staticmethod
    def _generator(number: int) -> torch.Generator:
        return torch.Generator().manual_seed(number)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
