"""The kinds of figures, as data that the page's script and matplotlib both draw from; pure.

A new kind is a class here, a file of the page's script, and a function of `plots`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Across:
    """The axis below curves.

    Attributes:
        label: With the unit.
        unit: ``bytes``, on a logarithmic axis, or what is counted, on a linear one.
        names: What to call each place, ascending, where a number says too little; else empty.
        joined: Whether a line joins the points; not where places have no order, as ranks.
    """

    label: str
    unit: str = "bytes"
    names: tuple[str, ...] = ()
    joined: bool = True


SIZE, BUCKET = Across("size (bytes)"), Across("bucket (bytes)")


@dataclass(frozen=True)
class Series:
    """A curve.

    Attributes:
        name: Of a backend, or of what else is compared.
        colour: A backend's is its place in the order of backends.
        points: (place, value), ascending.
    """

    name: str
    colour: int
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class Curves:
    """Values over size, or over what is counted.

    Attributes:
        name: For files and anchors.
        title: What is measured.
        label: Of the values' axis, with the unit.
        unit: Of the values.
        series: A curve each.
        across: The axis below.
        logarithmic: Whether the values' axis is; a linear one begins at 0, or below where values are.
    """

    kind: ClassVar[str] = "curves"
    name: str
    title: str
    label: str
    unit: str
    series: tuple[Series, ...]
    across: Across = SIZE
    logarithmic: bool = True


@dataclass(frozen=True)
class Bar:
    """A row: what it is of, and its parts."""

    name: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Bars:
    """What wholes are made of, a row each.

    Attributes:
        name: For files and anchors.
        title: What is measured.
        label: Of the axis, with the unit.
        unit: Of the values.
        parts: Names of a row's values; their place is their colour.
        rows: At least one.
    """

    kind: ClassVar[str] = "bars"
    name: str
    title: str
    label: str
    unit: str
    parts: tuple[str, ...]
    rows: tuple[Bar, ...]


@dataclass(frozen=True)
class Cell:
    """One direction between two ranks, or the slowest one between two blocks of ranks.

    Attributes:
        row: Block of the source.
        column: Block of the destination.
        source: Rank.
        dest: Rank.
        value: In the map's unit.
        times: How many times as slow as the median of its kind.
        slow: Whether it belongs to what is slow by the rule.
    """

    row: int
    column: int
    source: int
    dest: int
    value: float
    times: float
    slow: bool


@dataclass(frozen=True)
class Heat:
    """A matrix of ranks.

    Attributes:
        name: For files and anchors.
        title: What is measured.
        unit: Of the values.
        side: Number of rows and columns.
        block: Ranks of a row or column.
        hosts: Host of each rank.
        hostnames: Name of each host.
        labels: The same for its edges, without the domain that all have in common.
        cells: Those that were measured, the slowest last; as rows of their fields.
    """

    kind: ClassVar[str] = "heat"
    name: str
    title: str
    unit: str
    side: int
    block: int
    hosts: tuple[int, ...]
    hostnames: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Best:
    """The fastest backend by size and number of ranks.

    Attributes:
        name: For files and anchors.
        title: What is measured.
        ranks: A column each, in words.
        sizes: A row each, ascending.
        backends: All that are the best somewhere, with their colours.
        cells: By row and column: the colour of the best and all times in microseconds; None where nothing was measured.
    """

    kind: ClassVar[str] = "best"
    name: str
    title: str
    ranks: tuple[str, ...]
    sizes: tuple[int, ...]
    backends: dict[str, int]
    cells: tuple[tuple[tuple[str, dict[str, float]] | None, ...], ...]


Figure = Curves | Bars | Heat | Best


def entries(figure: Figure) -> dict[str, Any]:
    """Give a figure as the page's script takes it; numbers in four digits, as thousands of cells are many."""
    found = {"kind": figure.kind, **asdict(figure)}
    if isinstance(figure, Heat):
        found["cells"] = [
            [one.row, one.column, one.source, one.dest, _short(one.value), _short(one.times), int(one.slow)]
            for one in figure.cells
        ]
    return found


def _short(value: float) -> float:
    return float(f"{value:.4g}")
