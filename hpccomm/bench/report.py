"""From rows to lines of text; pure. ASCII only, as nothing is known of the terminal at the other end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from hpccomm.bench import definitions
from hpccomm.bench.environment import Environment
from hpccomm.bench.layout import REPS, Layout
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.tables import Table
from hpccomm.bench.text import field, note, strong
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes

_RANGES = 4  # more changes of the fastest backend than this are counted instead of listed


def header(environment: Environment, *, wide: bool) -> list[str]:
    """Give the block above all tables: what runs where, and what a time is."""
    mpi = "no MPI" if environment.mpi == "none" else environment.mpi
    lines = [strong(f"hpccomm {environment.hpccomm}")]
    lines += field("command", environment.command_line)
    lines += field("ranks", f"{environment.topology}; {environment.placement}")
    lines += field("launcher", f"{environment.launcher}; {mpi}")
    lines += field(
        "software",
        f"torch {environment.torch} with {count(environment.threads, 'thread')} a rank, Python {environment.python}",
    )
    lines += field("time_us", definitions.TIME)
    lines += field("skew_us", definitions.SKEW) if wide else []
    if environment.oversubscribed:
        lines.append(strong(environment.oversubscribed))
    return lines


def not_built(missing: Mapping[str, str]) -> list[str]:
    """Give a line for each backend that has no column, with the reason."""
    return [line for backend, why in missing.items() for line in note(f"not built: {backend}: {why}")]


def legend(layout: Layout) -> list[str]:
    """Give the backend of each letter, if columns are headed by letters."""
    if not layout.has_letters:
        return []
    return ["", *(f"{heading}  {backend}" for backend, heading in layout.headings.items())]


def head(table: Table, layout: Layout, notes: Sequence[str] = ()) -> list[str]:
    """Give title, formulas, notes, and the lines above the first row."""
    lines = ["", strong(table.title), *field("busbw", definitions.busbw(table.collective, table.ranks))]
    lines += field("wire", definitions.wire(table.collective)) if layout.wide else []
    lines += [line for text in notes for line in note(text)]
    left = layout.size_width + 1 + REPS
    above = " " * left + "".join(f" {heading:>{layout.width}}" for heading in layout.headings.values())
    below = f"{'size':>{layout.size_width}} {'reps':>{REPS}}" + f" {layout.titles}" * len(layout.backends)
    rule = f"{'-' * layout.size_width} {'-' * REPS}" + f" {'-' * layout.width}" * len(layout.backends)
    return [*lines, above, below, rule]


def row_lines(row: Row, layout: Layout, *, before: Sequence[Row] = ()) -> list[str]:
    """Give a row, and below it what went wrong there and in none of the rows before, and who fell back to what."""
    reps = "-" if row.iterations is None else str(row.iterations)
    line = f"{format_bytes(row.size_bytes):>{layout.size_width}} {reps:>{REPS}}"
    line += "".join(f" {layout.figures(cell, row)}" for cell in row.cells)
    notes = [
        f"{layout.name(cell.backend)}: {cell.error}"
        for cell in row.cells
        if cell.state in (State.WRONG, State.FAILED) and not _has(before, cell.backend, cell.state)
    ]
    notes += [f"{layout.name(cell.backend)} fell back: {text}" for cell in row.cells for text in _falls(cell, before)]
    return [line, *(part for text in notes for part in note(text))]


def footer(rows: Sequence[Row], layout: Layout, *, left_out: str | None) -> list[str]:
    """Give the lines below a table: fastest backends, what was left out, what failed."""
    lines = [line for text in fastest(rows, layout) for line in note(text, "")]
    if left_out:
        lines += note(f"left out: {left_out}", "")
    lines += [strong(line) for text in _failures(rows, layout) for line in note(text, "")]
    return ["", *lines] if lines else []


def closing(*, checked: bool) -> list[str]:
    """Give the line below all tables: whether results were checked."""
    right = "every time above belongs to right results on all ranks, checked before and after the timed calls"
    return ["", f"checked: {right}" if checked else "not checked (-c 0): results may be wrong"]


def fastest(rows: Sequence[Row], layout: Layout) -> list[str]:
    """Say which backend has the smallest median at which sizes, where several were measured."""
    found = [(row.best, row.size_bytes) for row in rows if row.best]
    runs = [
        (backend, [size for _, size in run])
        for backend, run in groupby(found, key=lambda pair: pair[0])
        if backend is not None
    ]
    if not runs:
        return []
    if len(runs) > _RANGES:
        counts = {backend: sum(best == backend for best, _ in found) for backend, _ in runs}
        ordered = sorted(counts, key=lambda backend: -counts[backend])
        text = ", ".join(f"{layout.name(backend)} at {counts[backend]}" for backend in ordered)
        return [f"fastest: {text} of {len(found)} sizes"]
    return [f"fastest: {', '.join(f'{layout.name(backend)}{_span(sizes)}' for backend, sizes in runs)}"]


def _span(sizes: Sequence[int]) -> str:
    first, last = format_bytes(sizes[0]), format_bytes(sizes[-1])
    if len(sizes) == 1:
        return f" at {first}" if sizes[0] else ""
    return f" from {first} to {last}"


def _failures(rows: Sequence[Row], layout: Layout) -> list[str]:
    found = []
    for backend in layout.backends:
        cells = [(row.size_bytes, cell) for row in rows for cell in row.cells if cell.backend == backend]
        for state in (State.WRONG, State.FAILED):
            sizes = [format_bytes(size) for size, cell in cells if cell.state is state]
            if sizes:
                found.append(f"{state.value.upper()}: {layout.name(backend)} at {', '.join(sizes)}")
    return found


def _falls(cell: Cell, before: Sequence[Row]) -> list[str]:
    """Give the falls since the rows before in full, else only where the last one led."""
    known = max(
        (len(other.fell_back) for row in before for other in row.cells if other.backend == cell.backend), default=0
    )
    return list(cell.fell_back[known:]) or [text.partition(" at call ")[0] for text in cell.fell_back[-1:]]


def _has(rows: Sequence[Row], backend: str, state: State) -> bool:
    return any(cell.backend == backend and cell.state is state for row in rows for cell in row.cells)
