"""One operation ready to be run: its tensors, what is put into them, and whether the result is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hpccomm.bench import inputs
from hpccomm.bench.collectives import IN
from hpccomm.bench.tables import Table

OPERATORS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
}

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class Data:
    """What a case is filled with and what must come out.

    Attributes:
        source: Pattern of this rank's input.
        blocks: Patterns of the output's equal blocks; none if there is nothing to compare.
        bound: How far an element may be from its pattern's; None for not at all.
    """

    source: Tensor
    blocks: Sequence[Tensor]
    bound: Sequence[Tensor] | None = None


class Case:
    """One collective of one size on this rank; every backend runs it on the same memory.

    Args:
        table: The collective, its operator, number of ranks, dtype and place.
        rank: This rank.
        count: Elements of the larger tensor.
        device: Where the tensors are.

    Attributes:
        table: As given.
        source: The input; in place, the output itself or this rank's share of it.
        output: The output; in place, the input itself or this rank's share of it.
        integers: Input and expected output that are compared for equality.
        random: Input and expected output that are compared within a bound, for sums and averages of floats.
    """

    def __init__(self, table: Table, *, rank: int, count: int, device: torch.device = _CPU) -> None:
        self.table = table
        self._is_queued = device.type != "cpu"
        collective, op, ranks = table.collective, table.op, table.ranks
        share = count // ranks
        dtype: torch.dtype = getattr(torch, table.dtype)
        self._op = OPERATORS[op or "sum"]
        self.output = torch.empty(share if collective.keeps_share else count, dtype=dtype, device=device)
        self.source = torch.empty(share if collective.sends_share else count, dtype=dtype, device=device)
        if table.place == IN:
            self._share_memory(rank)
        values = inputs.integers(op, ranks, inputs.Range.of(dtype))
        reduced = inputs.reduced(op, values)
        self.integers = Data(values[rank], collective.expected(list(values), reduced, rank, share))
        self.random: Data | None = None
        if op is not None and inputs.has_random_check(op, dtype):
            expected = [collective.expected((), row, rank, share) for row in inputs.random_sum(op, ranks, dtype)]
            self.random = Data(inputs.random_row(rank, dtype), *expected)

    def _share_memory(self, rank: int) -> None:
        sent, kept = self.source.numel(), self.output.numel()
        if sent < kept:
            self.source = self.output[rank * sent : (rank + 1) * sent]
        elif kept < sent:
            self.output = self.source[rank * kept : (rank + 1) * kept]
        else:
            self.source = self.output

    def fill(self, data: Data) -> None:
        """Put the input in place, and first into the rest of an output what differs from the result everywhere."""
        if self.source is not self.output:
            for block, pattern in self._blocks(data):
                inputs.fill(block, pattern - 1)
        inputs.fill(self.source, data.source)
        if self._is_queued:
            torch.cuda.synchronize(self.source.device)

    def run(self, group: Any) -> None:
        """Run the collective on a group; on a GPU until that has come past it."""
        self.table.collective.call(dist, self.output, self.source, self._op, group)
        if self._is_queued:
            torch.cuda.synchronize(self.output.device)

    def count_wrong(self, data: Data) -> int:
        """Count the elements of the output that are not what they must be."""
        bounds: Sequence[Tensor | None] = data.bound or [None] * len(data.blocks)
        return sum(
            inputs.count_different(block, pattern, bound)
            for (block, pattern), bound in zip(self._blocks(data), bounds, strict=True)
        )

    def _blocks(self, data: Data) -> list[tuple[Tensor, Tensor]]:
        if not data.blocks:
            return []
        return list(zip(self.output.chunk(len(data.blocks)), data.blocks, strict=True))
