"""One operation ready to be run: its tensors, what is put into them, and whether the result is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from hpccomm.bench import inputs
from hpccomm.bench.collectives import Collective

_OPS = {
    "sum": dist.ReduceOp.SUM,
    "prod": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "avg": dist.ReduceOp.AVG,
}


@dataclass(frozen=True)
class Data:
    """What a case is filled with and what must come out.

    Attributes:
        source: Pattern of this rank's input.
        blocks: Patterns of the output's equal blocks.
        bound: How far an element may be from its pattern's; None for not at all.
    """

    source: Tensor
    blocks: Sequence[Tensor]
    bound: Sequence[Tensor] | None = None


class Case:
    """One collective of one size on this rank; every backend runs it on the same memory.

    Args:
        collective: The collective.
        op: The operator, None for collectives without.
        dtype: The dtype of the elements.
        rank: This rank of the groups that run it.
        ranks: Their number of ranks.
        count: Elements of the larger tensor.
    """

    def __init__(
        self, collective: Collective, op: str | None, dtype: torch.dtype, *, rank: int, ranks: int, count: int
    ) -> None:
        share = count // ranks
        self._collective = collective
        self._op = _OPS[op or "sum"]
        self._output = torch.empty(share if collective.keeps_share else count, dtype=dtype)
        self._source = self._output
        if not collective.in_place:
            self._source = torch.empty(share if collective.sends_share else count, dtype=dtype)
        table = inputs.integers(op, ranks, inputs.Range.of(dtype))
        reduced = inputs.reduced(op, table)
        self.integers = Data(table[rank], collective.expected(list(table), reduced, rank, share))
        self.random: Data | None = None
        if op is not None and inputs.has_random_check(op, dtype):
            expected = [collective.expected((), row, rank, share) for row in inputs.random_sum(op, ranks, dtype)]
            self.random = Data(inputs.random_row(rank, dtype), *expected)

    def fill(self, data: Data) -> None:
        """Put the input in place, and into an output of its own what differs from the result everywhere."""
        inputs.fill(self._source, data.source)
        if not self._collective.in_place:
            for block, pattern in self._blocks(data):
                inputs.fill(block, pattern - 1)

    def run(self, group: Any) -> None:
        """Run the collective on a group."""
        self._collective.call(dist, self._output, self._source, self._op, group)

    def count_wrong(self, data: Data) -> int:
        """Count the elements of the output that are not what they must be."""
        bounds: Sequence[Tensor | None] = data.bound or [None] * len(data.blocks)
        return sum(
            inputs.count_different(block, pattern, bound)
            for (block, pattern), bound in zip(self._blocks(data), bounds, strict=True)
        )

    def _blocks(self, data: Data) -> list[tuple[Tensor, Tensor]]:
        return list(zip(self._output.chunk(len(data.blocks)), data.blocks, strict=True))
