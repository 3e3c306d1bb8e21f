"""What a collective is, for records and for the comparison between ranks; it knows no backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

SAME_COUNT = frozenset({"all_reduce", "broadcast", "reduce", "reduce_scatter", "all_gather", "gather", "scatter"})
"""Collectives of which every rank must state the same numbers of elements."""


class Results(list[Any]):
    """The results of a collective in which the ranks must agree on the sizes of other tensors.

    Args:
        results: The results.
        stated: What has the same sizes on all ranks: tensors, or lists of tensors that count as one.
    """

    def __init__(self, results: Sequence[Any], stated: Sequence[Any]) -> None:
        super().__init__(results)
        self.stated = stated


def shape_of(tensors: Sequence[Any]) -> tuple[int, Any]:
    """Give elements and dtype of an operation's first tensor, or of the tensors in its first list."""
    if not tensors:
        return 0, None
    first = tensors[0]
    if isinstance(first, torch.Tensor):
        return first.numel(), first.dtype
    return sum(tensor.numel() for tensor in first), first[0].dtype if first else None


def description_of(what: str, tensors: Sequence[Any], options: Any) -> str:
    """Say what a collective is, as far as it must be alike on all ranks."""
    stated = tensors.stated if isinstance(tensors, Results) else tensors
    if what in SAME_COUNT:
        sizes = ", ".join(f"{count} {dtype or ''}" for count, dtype in (shape_of([one]) for one in stated))
    else:
        sizes = str(shape_of(stated)[1] or "")
    words = [what, f"of {sizes}".replace("torch.", "")]
    op, root = getattr(options, "reduceOp", None), getattr(options, "rootRank", None)
    words += [f"with {getattr(op, 'op', op)}".replace("RedOpType.", "")] if op is not None else []
    words += [f"root {root}"] if root is not None else []
    return " ".join(" ".join(words).split())
