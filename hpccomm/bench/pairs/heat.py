"""Pairs on the terminal: a heat map, what is usual, and what is slow; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from hpccomm.bench.layout import format_rate
from hpccomm.bench.pairs import grid
from hpccomm.bench.pairs.matrix import BANDWIDTH, DEFINITIONS, LATENCY, UNITS, Edge, Matrix
from hpccomm.bench.pairs.outliers import RULE, Outlier, none_slow
from hpccomm.bench.text import field, note, strong
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

_MOST_NAMED = 10
_SICK, _SICK_STYLE = "#", "bold red"
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
            shown += ["", *grid.rendered(_map(matrix, measure, _marked(outliers, measure)), colours=colours)]
            shown += _usual(matrix, measure)
    return [*shown, "", *_verdict(matrix, outliers)]


def rounds(matrix: Matrix) -> str:
    """Say which rounds were played, and with what."""
    played = f"{matrix.rounds} of {count(matrix.all_rounds, 'round')} of disjoint pairs, all pairs of a round at once"
    messages = f"messages of {format_bytes(matrix.message_bytes)}, {count(matrix.iterations, 'repetition')}"
    return f"{played}: the ranks of a host share its link; {messages}"


def _map(matrix: Matrix, measure: str, sick: set[tuple[int, int]]) -> Iterator[Text]:
    unit = UNITS[measure]
    if len(matrix.hosts) <= grid.IN_FIGURES:
        yield Text(f"{measure} in {unit}, from (row) to (column); {_SICK} marks what is slow")
        yield from _figures(matrix, measure, sick)
    else:
        key = ", ".join(f"{shade} below {most:g}" for most, shade, _ in _SHADES)
        yield Text(f"{measure} from (row) to (column), times as slow as the median of its kind:")
        yield Text(f"  {key}, {_SLOWEST[0]} more; {_SICK} slow by the rule below")
        yield from _shades(matrix, measure, sick)


def _figures(matrix: Matrix, measure: str, sick: set[tuple[int, int]]) -> Iterator[Text]:
    medians, cells = matrix.medians(measure), {}
    for ends, edge in _cells(matrix, measure).items():
        value = edge.value(measure)
        assert value is not None
        mark = _SICK if ends in sick else " "
        figure = format_us(value) if measure == LATENCY else format_rate(value)
        style = _SICK_STYLE if mark == _SICK else _shade(matrix, edge, measure, medians)[1]
        cells[ends] = figure + mark, style
    yield from grid.figures(_names(matrix), cells)


def _shades(matrix: Matrix, measure: str, sick: set[tuple[int, int]]) -> Iterator[Text]:
    """Draw a character a cell; where there are more ranks than room, one for the slowest of a block of ranks."""
    medians, names = matrix.medians(measure), _names(matrix)
    block = grid.block(names)
    if block > 1:
        yield Text(f"  a character for {block} x {block} ranks shows the slowest of them")
    worst = _blocks(matrix, measure, block, sick)
    shades = {
        place: (_SICK, _SICK_STYLE) if (edge.source, edge.dest) in sick else _shade(matrix, edge, measure, medians)
        for place, edge in worst.items()
    }
    yield from grid.shades(names, shades, block)


def _blocks(matrix: Matrix, measure: str, block: int, sick: set[tuple[int, int]]) -> Cells:
    """Give the worst edge of every block of ranks."""
    medians = matrix.medians(measure)

    def order(edge: Edge) -> tuple[bool, float]:
        return (edge.source, edge.dest) in sick, matrix.times(edge, measure, medians)

    ordered = sorted(_cells(matrix, measure).values(), key=order)
    return {(edge.source // block, edge.dest // block): edge for edge in ordered}


def _names(matrix: Matrix) -> list[str]:
    return [matrix.rank_name(rank) for rank in range(len(matrix.hosts))]


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
