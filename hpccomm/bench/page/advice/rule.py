"""What a warning is, and a rule that gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from hpccomm.bench.page.runs import Run

OWN = "this benchmark"


@dataclass(frozen=True)
class Advice:
    """A warning.

    Attributes:
        figure: What was found.
        reason: Why it matters.
        setting: What to do.
    """

    figure: str
    reason: str
    setting: str


@dataclass(frozen=True)
class Rule:
    """When to warn.

    Attributes:
        when: The condition, in words, with its threshold.
        source: Where it is from, for the reader.
        find: Gives the warnings of a run.
    """

    when: str
    source: str
    find: Callable[[Run], Iterable[Advice]]
