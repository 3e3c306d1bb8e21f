"""Have DDP lay out its buckets for good before a run begins or goes on, so that both add up in the same order."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel


def settle_buckets(model: DistributedDataParallel, loss: Callable[[], torch.Tensor]) -> None:
    """Go through two backward passes whose gradients are thrown away; collective.

    DDP lays its buckets out anew in its second pass, in the order in which the gradients of the first came. Where a
    gradient stands decides in which order more than two ranks add it up, and so on its last bit. A run that goes on
    from a checkpoint is in its first pass again: without this it would round otherwise than one that never ended.

    What the passes change besides gradients (random numbers, running statistics) is the caller's to put back.

    Args:
        model: Before its first pass.
        loss: Gives the loss of some rows, the same number on every rank.
    """
    for _ in range(2):
        loss().backward()  # type: ignore[no-untyped-call]
        model.zero_grad()
