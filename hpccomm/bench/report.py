"""From rows to lines of text; pure. ASCII only, as nothing is known of the terminal at the other end."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from string import ascii_uppercase

from hpccomm.bench.environment import Environment
from hpccomm.bench.metrics import busbw_gbps
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.units import format_bytes, format_us

_WIDTH = 100
_TIME, _RATE, _REPS = 8, 6, 4
_PAIR = _TIME + 2 + _RATE  # the mark of the best time stands between
_RANGES = 4  # more changes of the fastest backend than this are counted instead of listed


@dataclass(frozen=True)
class Layout:
    """Where things stand in the table.

    Attributes:
        backends: Expressions, in the order of the columns.
        sizes: All sizes that may come, in bytes.
        bold: Whether the terminal shows bold text.
    """

    backends: tuple[str, ...]
    sizes: tuple[int, ...]
    bold: bool = False

    @property
    def has_letters(self) -> bool:
        """Whether columns are headed by letters, since an expression is wider than its column."""
        return any(len(backend) > _PAIR for backend in self.backends)

    @property
    def headings(self) -> dict[str, str]:
        """Heading of each backend's pair of columns."""
        if not self.has_letters:
            return {backend: backend for backend in self.backends}
        return {backend: _letter(number) for number, backend in enumerate(self.backends)}

    @property
    def size_width(self) -> int:
        """Width of the column of sizes."""
        return max(len("size"), *(len(format_bytes(size)) for size in self.sizes))

    def name(self, backend: str) -> str:
        """Name a backend in running text, with its letter if it has one."""
        return f"{self.headings[backend]} {backend}" if self.has_letters else backend

    def strong(self, text: str) -> str:
        """Mark text as bold, where that shows."""
        return f"\x1b[1m{text}\x1b[0m" if self.bold else text


def header(title: str, environment: Environment, definitions: Mapping[str, str], layout: Layout) -> list[str]:
    """Give the block above the table: what runs where, and what the figures mean."""
    threads = f"{environment.threads} thread{'s' * (environment.threads > 1)} a rank"
    mpi = "no MPI" if environment.mpi == "none" else environment.mpi
    lines = [layout.strong(f"hpccomm {environment.hpccomm}: {title}")]
    lines += _field("command", environment.command_line)
    lines += _field("ranks", f"{environment.topology}; {environment.placement}")
    lines += _field("launcher", f"{environment.launcher}; {mpi}")
    lines += _field("software", f"torch {environment.torch} with {threads}, Python {environment.python}")
    lines += _field("time_us", definitions["time"])
    lines += _field("busbw", definitions["busbw"])
    if environment.oversubscribed:
        lines.append(layout.strong(environment.oversubscribed))
    return lines


def not_built(missing: Mapping[str, str]) -> list[str]:
    """Give a line for each backend that has no column, with the reason."""
    return [line for backend, why in missing.items() for line in _note(f"not built: {backend}: {why}")]


def head(layout: Layout) -> list[str]:
    """Give the legend, if columns are headed by letters, and the lines above the first row."""
    legend = [f"{heading}  {backend}" for backend, heading in layout.headings.items()]
    left = layout.size_width + 1 + _REPS
    above = " " * left + "".join(f" {heading:>{_PAIR}}" for heading in layout.headings.values())
    pair = f" {'time_us':>{_TIME}}  {'busbw':>{_RATE}}"
    below = f"{'size':>{layout.size_width}} {'reps':>{_REPS}}" + pair * len(layout.backends)
    rule = f"{'-' * layout.size_width} {'-' * _REPS}" + f" {'-' * _PAIR}" * len(layout.backends)
    return ["", *(legend if layout.has_letters else []), above, below, rule]


def row_lines(row: Row, layout: Layout, factor: float | None, *, before: Sequence[Row] = ()) -> list[str]:
    """Give a row, and below it what went wrong there and in none of the rows before."""
    reps = "-" if row.iterations is None else str(row.iterations)
    line = f"{format_bytes(row.size_bytes):>{layout.size_width}} {reps:>{_REPS}}"
    line += "".join(f" {_pair(cell, row, layout, factor)}" for cell in row.cells)
    notes = [
        f"{layout.name(cell.backend)}: {cell.error}"
        for cell in row.cells
        if cell.state in (State.WRONG, State.FAILED) and not _has(before, cell.backend, cell.state)
    ]
    return [line, *(part for note in notes for part in _note(note))]


def footer(rows: Sequence[Row], layout: Layout, *, checked: bool, left_out: str | None) -> list[str]:
    """Give the lines below the table: fastest backends, what was left out, what failed, whether it was checked."""
    lines = [""] + [line for text in fastest(rows, layout) for line in _note(text, "")]
    if left_out:
        lines += _note(f"left out: {left_out}", "")
    lines += [line for text in _failures(rows, layout) for line in _note(layout.strong(text), "")]
    right = "every time above belongs to right results on all ranks, checked before and after the timed calls"
    return [*lines, f"checked: {right}" if checked else "not checked (-c 0): results may be wrong"]


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
    return [f"fastest: {', '.join(f'{layout.name(backend)} {_span(sizes)}' for backend, sizes in runs)}"]


def _span(sizes: Sequence[int]) -> str:
    first, last = format_bytes(sizes[0]), format_bytes(sizes[-1])
    return f"at {first}" if len(sizes) == 1 else f"from {first} to {last}"


def _failures(rows: Sequence[Row], layout: Layout) -> list[str]:
    found = []
    for backend in layout.backends:
        cells = [(row.size_bytes, cell) for row in rows for cell in row.cells if cell.backend == backend]
        for state in (State.WRONG, State.FAILED):
            sizes = [format_bytes(size) for size, cell in cells if cell.state is state]
            if sizes:
                found.append(f"{state.value.upper()}: {layout.name(backend)} at {', '.join(sizes)}")
    return found


def _has(rows: Sequence[Row], backend: str, state: State) -> bool:
    return any(cell.backend == backend and cell.state is state for row in rows for cell in row.cells)


def _pair(cell: Cell, row: Row, layout: Layout, factor: float | None) -> str:
    if cell.times is None:
        return f"{cell.state.value:>{_TIME}}  {'-':>{_RATE}}"
    median = cell.times.median_us
    time, rate = f"{format_us(median):>{_TIME}}", _rate(busbw_gbps(row.size_bytes, median, factor))
    is_best = row.best == cell.backend
    return f"{layout.strong(time) if is_best else time}{'*' if is_best else ' '} {rate:>{_RATE}}"


def _rate(gbps: float | None) -> str:
    if gbps is None:
        return "-"
    if gbps < 0.00095:
        return f"{gbps:.0e}"
    digits = next(
        digits for limit, digits in ((0.00995, 4), (0.995, 3), (9.995, 2), (99.95, 1), (1e9, 0)) if gbps < limit
    )
    return f"{gbps:.{digits}f}"


def _letter(number: int) -> str:
    return ascii_uppercase[number] if number < 26 else f"#{number + 1}"


def _field(name: str, text: str) -> list[str]:
    return textwrap.wrap(f"{name:<9} {text}", _WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False)


def _note(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)
