"""Where things stand in a table: the columns of each backend, their headings and widths. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_uppercase

from hpccomm.bench.metrics import busbw_gbps
from hpccomm.bench.rows import Cell, Row
from hpccomm.bench.text import strong
from hpccomm.units import format_bytes, format_us, rate_gbps

REPS = 4
_TIME, _RATE = 8, 6
_PAIR = _TIME + 2 + _RATE  # the mark of the best time stands between
_WIDE = _PAIR + 1 + _TIME + 1 + _RATE
_LEAST = 0.0001  # the smallest rate that four decimals show


@dataclass(frozen=True)
class Layout:
    """How a table looks.

    Attributes:
        backends: Expressions, in the order of the columns.
        sizes: All sizes that may come, in bytes.
        factor: Busbw factor, None where there is no bus bandwidth.
        wide: Whether skew and the rate between nodes are shown.
    """

    backends: tuple[str, ...]
    sizes: tuple[int, ...] = ()
    factor: float | None = None
    wide: bool = False

    @property
    def width(self) -> int:
        """Width of the columns of a backend."""
        return _WIDE if self.wide else _PAIR

    @property
    def has_letters(self) -> bool:
        """Whether columns are headed by letters, since an expression is wider than its columns."""
        return any(len(backend) > self.width for backend in self.backends)

    @property
    def headings(self) -> dict[str, str]:
        """Heading of each backend's columns."""
        if not self.has_letters:
            return {backend: backend for backend in self.backends}
        return {backend: letter(number) for number, backend in enumerate(self.backends)}

    @property
    def titles(self) -> str:
        """Titles of a backend's columns."""
        return f"{'time_us':>{_TIME}}  {'busbw':>{_RATE}}" + f" {'skew_us':>{_TIME}} {'wire':>{_RATE}}" * self.wide

    @property
    def size_width(self) -> int:
        """Width of the column of sizes."""
        return max(len("size"), *(len(format_bytes(size)) for size in self.sizes))

    def name(self, backend: str) -> str:
        """Name a backend in running text, with its letter if it has one."""
        return f"{self.headings[backend]} {backend}" if self.has_letters else backend

    def figures(self, cell: Cell, row: Row) -> str:
        """Give a backend's columns of a row."""
        if cell.times is None:
            rest = f" {'-':>{_TIME}} {'-':>{_RATE}}" * self.wide
            return f"{cell.state.value:>{_TIME}}  {'-':>{_RATE}}{rest}"
        median = cell.times.median_us
        time = f"{format_us(median):>{_TIME}}"
        is_best = row.best == cell.backend
        text = f"{strong(time) if is_best else time}{'*' if is_best else ' '}"
        text += f" {format_rate(busbw_gbps(row.moved_bytes, median, self.factor)):>{_RATE}}"
        if not self.wide:
            return text
        wire = rate_gbps(cell.wire_bytes, median) if cell.wire_bytes else None
        return f"{text} {format_us(cell.times.skew_us):>{_TIME}} {format_rate(wire):>{_RATE}}"


def format_rate(gbps: float | None) -> str:
    """Write GB/s in at most six characters: three digits that count, at most four decimals.

    >>> format_rate(2e-6), format_rate(0.0123), format_rate(12.34)
    ('<.0001', '0.012', '12.3')
    """
    if gbps is None:
        return "-"
    if gbps < _LEAST:
        return "<.0001"
    limits = ((0.00995, 4), (0.995, 3), (9.995, 2), (99.95, 1))
    digits = next((digits for limit, digits in limits if gbps < limit), 0)
    return f"{gbps:.{digits}f}"


def letter(number: int) -> str:
    """Give the heading of a numbered column: A to Z, then #27."""
    return ascii_uppercase[number] if number < 26 else f"#{number + 1}"
