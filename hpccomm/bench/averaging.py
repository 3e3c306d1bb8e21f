"""What averaging a model's gradients tells: which bucket size is the best, and how much backward hides. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from hpccomm.bench.rows import Row

HIDDEN = (
    "(averaging + backward - both) / averaging, each the median time of its own; below 0: they hinder each other; "
    "above 100: something else slowed one of them down, measure again"
)


class Part(Enum):
    """What is timed; the value is what a table of it is called."""

    AVERAGING = "gradients of {}"
    BACKWARD = "backward of {}"
    BOTH = "backward and gradients of {}"

    def of(self, model: str) -> str:
        """Give the name of the table of a model."""
        return self.value.format(model)


@dataclass(frozen=True)
class Averaged:
    """One backend with buckets of one size and nothing computed meanwhile.

    Attributes:
        backend: Its expression.
        bucket_bytes: A bucket takes gradients until it holds so many.
        averaging_us: Median time in microseconds.
    """

    backend: str
    bucket_bytes: int
    averaging_us: float


@dataclass(frozen=True)
class Overlap(Averaged):
    """The same with backward alone and both at once; times in microseconds."""

    backward_us: float
    both_us: float

    @property
    def hidden_percent(self) -> float:
        """Percent of the averaging's time that both together do not take."""
        return 100 * (self.averaging_us + self.backward_us - self.both_us) / self.averaging_us

    def entries(self) -> dict[str, Any]:
        """Give it as JSON takes it."""
        return {**asdict(self), "hidden_percent": self.hidden_percent}


def model_of(name: str, scale: int) -> str:
    """Give what a model is called of which one scale-th is taken.

    >>> model_of("gpt2", 1), model_of("gpt2", 512)
    ('gpt2', 'gpt2/512')
    """
    return f"{name}/{scale}" if scale > 1 else name


def averaged(rows: Sequence[Row]) -> Iterator[Averaged]:
    """Give what was measured alone."""
    for row in rows:
        for cell in row.cells:
            if cell.times:
                yield Averaged(cell.backend, row.size_bytes, cell.times.median_us)


def hidden(alone: Sequence[Row], both: Sequence[Row], backward_us: float) -> Iterator[Overlap]:
    """Give what all that was measured both ways hides."""
    before = {(one.backend, one.bucket_bytes): one.averaging_us for one in averaged(alone)}
    for one in averaged(both):
        if (one.backend, one.bucket_bytes) in before:
            averaging_us = before[one.backend, one.bucket_bytes]
            yield Overlap(one.backend, one.bucket_bytes, averaging_us, backward_us, one.averaging_us)
