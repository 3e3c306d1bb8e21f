"""Unequal shares over libraries whose collectives take equal ones only."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hpccomm.backends.base import Operation, offsets

Gather = Callable[[torch.Tensor, torch.Tensor], Operation]
"""Gathers equal shares of bytes: into the first tensor, of the second."""


def gather_padded(gather: Gather, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int]) -> Operation:
    """Gather unequal shares, each padded to the largest.

    Args:
        gather: Gathers equal shares.
        output: All shares, in rank order.
        source: This rank's.
        counts: The elements of each.
    """
    longest = max(counts)
    padded = source.new_zeros(longest)
    padded[: source.numel()] = source.view(-1)
    rows = source.new_empty((len(counts), longest))
    yield from gather(rows, padded)
    starts, flat = offsets(counts), output.view(-1)
    for rank, count in enumerate(counts):
        flat[starts[rank] : starts[rank + 1]] = rows[rank, :count]


def reduce_whole(
    reduce: Callable[[torch.Tensor], Operation], output: torch.Tensor, source: torch.Tensor, start: int
) -> Operation:
    """Reduce all of a copy of `source` on every rank, and keep the part of it from `start` that fills `output`."""
    whole = source.clone().view(-1)
    yield from reduce(whole)
    output.view(-1).copy_(whole[start : start + output.numel()])
