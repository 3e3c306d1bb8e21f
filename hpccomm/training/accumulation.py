"""Several backward passes for one step: all ranks talk in the last one only, and the sum is that of one large batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

from hpccomm.errors import OptionError

T = TypeVar("T")


class Synchronizes(Protocol):
    """DDP, `GradientBuckets`, and whatever else can leave its ranks' gradients alone for a while."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Give a context in which gradients add up in this rank alone."""


@dataclass(frozen=True)
class Micro:
    """One backward pass of a step; a context for its forward and backward.

    Attributes:
        last: Whether the gradients are averaged over the ranks in this one, so that the step comes next.
        weight: What to multiply its loss by: its share of the step's rows, or of its passes.
    """

    model: Synchronizes
    last: bool
    weight: float

    def context(self) -> AbstractContextManager[None]:
        """Give `no_sync` of the model in all passes but the last; forward belongs inside, as DDP looks there."""
        return nullcontext() if self.last else self.model.no_sync()


def accumulate(
    model: Synchronizes, batches: Iterable[T], *, passes: int, rows: Callable[[T], int] | None = None
) -> Iterator[tuple[T, Micro]]:
    """Go through batches, some of them for each step.

    ::

        for batch, micro in accumulate(ddp, loader, passes=4):
            with micro.context():
                (loss(ddp, batch) * micro.weight).backward()
            if micro.last:  # and with GradientBuckets: buckets.wait()
                optimizer.step()
                optimizer.zero_grad()

    The gradient of a step is then that of the mean loss over all its batches as one, the last step's too where
    batches are left over. Losses must be means over a batch, and all ranks need the same number of batches, and of
    rows in a step. It reads a step's batches before it gives the first of them, and keeps them.

    Args:
        model: What averages the gradients.
        batches: This rank's.
        passes: How many make one step.
        rows: Gives the number of rows of a batch; None where all batches have as many.

    Raises:
        OptionError: `passes` is below 1.
    """
    if passes < 1:
        raise OptionError(
            f"accumulate {passes} passes for a step", found="fewer than one", remedy="give 1 or more", everywhere=True
        )
    return _passes(model, iter(batches), passes, rows or (lambda batch: 1))


def _passes(
    model: Synchronizes, batches: Iterator[T], passes: int, rows: Callable[[T], int]
) -> Iterator[tuple[T, Micro]]:
    while step := list(islice(batches, passes)):
        sizes = [rows(batch) for batch in step]
        for at, (batch, size) in enumerate(zip(step, sizes, strict=True)):
            yield batch, Micro(model, last=at + 1 == len(step), weight=size / sum(sizes))
