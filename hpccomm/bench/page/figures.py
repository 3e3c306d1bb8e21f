"""The figures of tables and of matrices; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.bench.page.runs import Measured, Run
from hpccomm.bench.page.shapes import Best, Cell, Curves, Heat, Series
from hpccomm.bench.pairs.matrix import BANDWIDTH, LATENCY, UNITS, Edge, Matrix
from hpccomm.bench.pairs.outliers import find
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes

MOST_CELLS = 128
"""Of a heat map's side; with more ranks a cell is a block of ranks, as cells of a pixel show nothing."""


def colours(runs: Sequence[Run]) -> dict[str, int]:
    """Give every backend its place, the same in all figures."""
    names = [name for run in runs for table in run.tables for name in table.backends]
    names += [name for run in runs for name in run.readings.backends]
    return {name: place for place, name in enumerate(dict.fromkeys(names))}


def of_table(table: Measured, name: str, palette: dict[str, int]) -> Iterator[Curves]:
    """Give the curves of a table: time and, where there is any, bus bandwidth."""
    values = {
        "time": ("time (us, median)", "us", {(one.backend, one.size): one.time_us for one in table.points}),
        "busbw": ("busbw (GB/s)", "GB/s", {(one.backend, one.size): one.busbw_gbps for one in table.points}),
    }
    for what, (label, unit, found) in values.items():
        series = [
            Series(backend, palette[backend], _points(found, backend))
            for backend in table.backends
            if _points(found, backend)
        ]
        if any(len(one.points) > 1 for one in series):
            yield Curves(f"{name}-{what}", f"{table.full_title}: {what}", label, unit, tuple(series))


def _points(values: dict[tuple[str, int], float | None], backend: str) -> tuple[tuple[int, float], ...]:
    """Give a backend's points; a logarithmic axis has no place for a size of 0."""
    return tuple((size, value) for (name, size), value in sorted(values.items()) if name == backend and size and value)


def best_maps(runs: Sequence[Run], palette: dict[str, int]) -> Iterator[Best]:
    """Give a map for each kind of table of which any run compared backends."""
    columns = sorted({(table.ranks, run.title) for run in runs for table in run.tables})
    for number, title in enumerate(dict.fromkeys(table.title for run in runs for table in run.tables), 1):
        found: dict[tuple[int, tuple[int, str]], dict[str, float]] = {}
        for run in runs:
            for table in run.tables:
                if table.title == title:
                    found |= {(size, (table.ranks, run.title)): times for size, times in table.times.items()}
        if all(len(times) < 2 for times in found.values()):
            continue
        sizes = sorted({size for size, _ in found})
        used = [column for column in columns if any(column == of for _, of in found)]
        cells = tuple(tuple(_best(found.get((size, column))) for column in used) for size in sizes)
        names = {cell[0] for row in cells for cell in row if cell}
        shown = {name: colour for name, colour in palette.items() if name in names}
        yield Best(f"best-{number}", title, tuple(name for _, name in used), tuple(sizes), shown, cells)


def _best(times: dict[str, float] | None) -> tuple[str, dict[str, float]] | None:
    return (min(times, key=times.__getitem__), times) if times else None


def of_matrix(matrix: Matrix, name: str) -> Iterator[Heat]:
    """Give the heat maps of a matrix: latency and bandwidth."""
    slow = find(matrix)
    for measure in (LATENCY, BANDWIDTH):
        sick = {ends for one in slow if one.measure == measure for ends in one.edges}
        ranks = len(matrix.hosts)
        block = -(-ranks // MOST_CELLS)
        cells = _cells(matrix, measure, sick, block)
        if cells:
            title = f"{measure} of pairs over {matrix.backend}, {count(ranks, 'rank')}"
            title += "" if measure == LATENCY else f", messages of {format_bytes(matrix.message_bytes)}"
            yield Heat(
                name=f"{name}-{measure}",
                title=title,
                unit=UNITS[measure],
                side=-(-ranks // block),
                block=block,
                hosts=matrix.hosts,
                hostnames=matrix.hostnames,
                labels=_without_domain(matrix.hostnames),
                cells=cells,
            )


def _without_domain(names: Sequence[str]) -> tuple[str, ...]:
    hosts, _, domains = zip(*(name.partition(".") for name in names), strict=True)
    return hosts if len({*domains}) == 1 and all(hosts) else tuple(names)


def _cells(matrix: Matrix, measure: str, sick: set[tuple[int, int]], block: int) -> tuple[Cell, ...]:
    medians = matrix.medians(measure)

    def cell(edge: Edge, value: float) -> Cell:
        return Cell(
            row=edge.source // block,
            column=edge.dest // block,
            source=edge.source,
            dest=edge.dest,
            value=value,
            times=matrix.times(edge, measure, medians),
            slow=(edge.source, edge.dest) in sick,
        )

    found = [cell(edge, value) for edge in matrix.edges if (value := edge.value(measure))]
    found.sort(key=lambda one: (one.slow, one.times))
    return tuple({(one.row, one.column): one for one in found}.values())
