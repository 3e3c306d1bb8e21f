"""A square of ranks by ranks on the terminal: a figure a cell, or a character a cell where there are many; pure."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from hpccomm.bench.text import WIDTH

IN_FIGURES = 12
"""Up to so many ranks a cell has room for a figure."""

_CELL = 7
_ITSELF, _NONE, _UNKNOWN = "\\", "-", " "

Cells = Mapping[tuple[int, int], tuple[str, str]]
"""Text and style by row and column."""


def figures(names: Sequence[str], cells: Cells) -> Iterator[Text]:
    """Draw a figure a cell."""
    width, ranks = max(map(len, names)), range(len(names))
    yield Text(" " * width + "".join(f"{rank:>{_CELL}}" for rank in ranks))
    for row, name in enumerate(names):
        text = Text(f"{name:>{width}}")
        for column in ranks:
            shown, style = cells.get((row, column), (_ITSELF if row == column else _NONE, ""))
            text.append(f"{shown:>{_CELL}}", style)
        yield text


def block(names: Sequence[str]) -> int:
    """Give how many ranks a character must stand for, so that all have room."""
    return -(-len(names) // (WIDTH - max(map(len, names)) - 1))


def shades(names: Sequence[str], cells: Cells, block: int) -> Iterator[Text]:
    """Draw a character a cell, which stands for a block of so many ranks by as many."""
    width, blocks = max(map(len, names)), range(-(-len(names) // block))
    for row in blocks:
        text = Text(f"{names[row * block]:>{width}} ")
        for column in blocks:
            text.append(*cells.get((row, column), (_ITSELF if row == column else _UNKNOWN, "")))
        yield text


def rendered(rows: Iterable[Text], *, colours: bool) -> list[str]:
    """Give the lines as text, with a terminal's colours or without."""
    console = Console(
        file=io.StringIO(),
        width=2 * WIDTH,
        force_terminal=colours,
        color_system="standard" if colours else None,
        highlight=False,
    )
    with console.capture() as captured:
        for row in rows:
            console.print(row, soft_wrap=True)
    return captured.get().splitlines()
