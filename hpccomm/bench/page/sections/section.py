"""What a section of the page is, whatever it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpccomm.bench.page.shapes import Figure


@dataclass(frozen=True)
class Values:
    """A table of values.

    Attributes:
        title: Above it.
        head: Names of its columns; the first one names the rows.
        rows: All cells as text.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Section:
    """One section of one run.

    Attributes:
        anchor: To jump to.
        title: Its heading.
        sentences: What was found, by the rules.
        figures: What is drawn.
        values: The same in numbers.
        rules: What the words mean, by word.
    """

    anchor: str
    title: str
    sentences: Sequence[str]
    figures: Sequence[Figure]
    values: Sequence[Values]
    rules: Mapping[str, str]
