"""Pairs on the terminal: a heat map, what is usual, and what is slow; pure."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.text import Text

from hpccomm.bench.layout import format_rate
from hpccomm.bench.pairs.matrix import BANDWIDTH, DEFINITIONS, LATENCY, UNITS, Edge, Matrix
from hpccomm.bench.pairs.outliers import RULE, Outlier, none_slow
from hpccomm.bench.text import WIDTH, field, note, strong
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

_IN_FIGURES = 12  # up to so many ranks a cell holds its value
_CELL = 7
_MOST_NAMED = 10
_SICK, _SICK_STYLE, _ITSELF, _UNKNOWN = "#", "bold red", "\\", " "
_SHADES = ((1.25, ".", "green"), (1.5, "-", "cyan"), (2.0, "+", "yellow"), (4.0, "x", "magenta"))
_SLOWEST = ("X", "red")

Cells = Mapping[tuple[int, int], Edge]


def lines(matrix: Matrix, outliers: Sequence[Outlier], *, colours: bool) -> list[str]:
    """Give all that is shown of a matrix; colours only add to what the characters say."""
    shown = ["", strong(f"pairs over {matrix.backend}, {count(len(matrix.hosts), 'rank')}")]
    for measure in (LATENCY, BANDWIDTH):
        shown += field(measure, DEFINITIONS[measure])
    shown += field("rounds", rounds(matrix))
    for measure in (LATENCY, BANDWIDTH):
        if any(edge.value(measure) for edge in matrix.edges):
            shown += ["", *_rendered(_map(matrix, measure, _marked(outliers, measure)), colours=colours)]
            shown += _usual(matrix, measure)
    return [*shown, "", *_verdict(matrix, outliers)]


def rounds(matrix: Matrix) -> str:
    """Say which rounds were played, and with what."""
    played = f"{matrix.rounds} of {count(matrix.all_rounds, 'round')} of disjoint pairs, all pairs of a round at once"
    messages = f"messages of {format_bytes(matrix.message_bytes)}, {count(matrix.iterations, 'repetition')}"
    return f"{played}: the ranks of a host share its link; {messages}"


def _map(matrix: Matrix, measure: str, sick: set[tuple[int, int]]) -> Iterator[Text]:
    unit = UNITS[measure]
    if len(matrix.hosts) <= _IN_FIGURES:
        yield Text(f"{measure} in {unit}, from (row) to (column); {_SICK} marks what is slow")
        yield from _figures(matrix, measure, sick)
    else:
        key = ", ".join(f"{shade} below {most:g}" for most, shade, _ in _SHADES)
        yield Text(f"{measure} from (row) to (column), times as slow as the median of its kind:")
        yield Text(f"  {key}, {_SLOWEST[0]} more; {_SICK} slow by the rule below")
        yield from _shades(matrix, measure, sick)


def _figures(matrix: Matrix, measure: str, sick: set[tuple[int, int]]) -> Iterator[Text]:
    cells, names = _cells(matrix, measure), [matrix.rank_name(rank) for rank in range(len(matrix.hosts))]
    width, medians = max(map(len, names)), matrix.medians(measure)
    yield Text(" " * width + "".join(f"{rank:>{_CELL}}" for rank in range(len(names))))
    for source, name in enumerate(names):
        row = Text(f"{name:>{width}}")
        for dest in range(len(names)):
            edge = cells.get((source, dest))
            value = edge.value(measure) if edge else None
            if edge is None or value is None:
                row.append(f"{_ITSELF if source == dest else '-':>{_CELL}}")
                continue
            mark = _SICK if (source, dest) in sick else " "
            figure = format_us(value) if measure == LATENCY else format_rate(value)
            style = _SICK_STYLE if mark == _SICK else _shade(matrix, edge, measure, medians)[1]
            row.append(f"{figure + mark:>{_CELL}}", style)
        yield row


def _shades(matrix: Matrix, measure: str, sick: set[tuple[int, int]]) -> Iterator[Text]:
    """Draw a character a cell; where there are more ranks than room, one for the slowest of a block of ranks."""
    ranks, medians = len(matrix.hosts), matrix.medians(measure)
    names = [matrix.rank_name(rank) for rank in range(ranks)]
    width = max(map(len, names))
    block = -(-ranks // (WIDTH - width - 1))
    worst = _blocks(matrix, measure, block, sick)
    if block > 1:
        yield Text(f"  a character for {block} x {block} ranks shows the slowest of them")
    for row in range(-(-ranks // block)):
        text = Text(f"{names[row * block]:>{width}} ")
        for column in range(-(-ranks // block)):
            edge = worst.get((row, column))
            if edge is None:
                text.append(_ITSELF if row == column else _UNKNOWN)
            elif (edge.source, edge.dest) in sick:
                text.append(_SICK, _SICK_STYLE)
            else:
                text.append(*_shade(matrix, edge, measure, medians))
        yield text


def _blocks(matrix: Matrix, measure: str, block: int, sick: set[tuple[int, int]]) -> Cells:
    """Give the worst edge of every block of ranks."""
    medians = matrix.medians(measure)

    def order(edge: Edge) -> tuple[bool, float]:
        return (edge.source, edge.dest) in sick, matrix.times(edge, measure, medians)

    ordered = sorted(_cells(matrix, measure).values(), key=order)
    return {(edge.source // block, edge.dest // block): edge for edge in ordered}


def _cells(matrix: Matrix, measure: str) -> Cells:
    return {(edge.source, edge.dest): edge for edge in matrix.edges if edge.value(measure)}


def _shade(matrix: Matrix, edge: Edge, measure: str, medians: Mapping[str, float]) -> tuple[str, str]:
    times = matrix.times(edge, measure, medians)
    return next(((shade, style) for most, shade, style in _SHADES if times < most), _SLOWEST)


def _marked(outliers: Sequence[Outlier], measure: str) -> set[tuple[int, int]]:
    return {ends for one in outliers if one.measure == measure for ends in one.edges}


def _usual(matrix: Matrix, measure: str) -> list[str]:
    found = []
    for kind, median in matrix.medians(measure).items():
        values = [value for edge in matrix.of_kind(kind, measure) if (value := edge.value(measure))]
        figures = [_figure(value, measure) for value in (median, min(values), max(values))]
        found.append(f"{kind}: median {figures[0]}, {figures[1]} to {figures[2]}")
    return note(f"{measure} {'; '.join(found)}", "")


def _figure(value: float, measure: str) -> str:
    return f"{format_us(value) if measure == LATENCY else format_rate(value)} {UNITS[measure]}"


def describe(one: Outlier) -> str:
    """Say what is slow, and how much."""
    figures = f"{_figure(one.value, one.measure)}, {one.times:.2g} times as slow as the median"
    return f"{one.name}: {one.measure} {figures}, {_figure(one.median, one.measure)}"


def _verdict(matrix: Matrix, outliers: Sequence[Outlier]) -> Iterator[str]:
    wrong = [edge for edge in matrix.edges if edge.wrong]
    if wrong:
        names = ", ".join(f"{edge.source} to {edge.dest}" for edge in wrong[:_MOST_NAMED])
        yield from map(strong, note(f"WRONG: {count(len(wrong), 'pair')}: ranks {names}", ""))
    if matrix.error:
        yield from map(strong, note(f"FAILED: {matrix.error}", ""))
    for one in outliers[:_MOST_NAMED]:
        yield from map(strong, note(f"SLOW: {describe(one)}", ""))
    if len(outliers) > _MOST_NAMED:
        yield f"and {len(outliers) - _MOST_NAMED} more, less slow"
    if not outliers:
        yield from note(none_slow(matrix), "")
    yield from note(RULE)


def _rendered(rows: Iterator[Text], *, colours: bool) -> list[str]:
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
