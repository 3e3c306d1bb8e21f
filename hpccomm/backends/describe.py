"""What a collective is, for records and for the comparison between ranks; it knows no backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

SAME_COUNT = frozenset({"all_reduce", "broadcast", "reduce", "all_gather", "scatter"})
"""Collectives of which every rank must state the same number of elements."""


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
    count, dtype = shape_of(tensors)
    words = [what, f"of {count if what in SAME_COUNT else ''} {dtype or ''}".replace("torch.", "")]
    op, root = getattr(options, "reduceOp", None), getattr(options, "rootRank", None)
    words += [f"with {getattr(op, 'op', op)}".replace("RedOpType.", "")] if op is not None else []
    words += [f"root {root}"] if root is not None else []
    return " ".join(" ".join(words).split())
