"""Bytes from rank to rank of a traced program, as a heat map on the terminal; pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rich.text import Text

from hpccomm.bench.pairs import grid
from hpccomm.bench.pairs.matrix import ACROSS, INSIDE
from hpccomm.bench.text import note
from hpccomm.timeline.chrome import Summary
from hpccomm.units import format_bytes

# By the part of the largest cell from which on it holds
_SHADES = ((1 / 2, "X", "red"), (1 / 8, "x", "magenta"), (1 / 64, "+", "yellow"), (0, ".", "green"))
_UNITS = "BKMGTP"

Bytes = Mapping[tuple[int, int], int]


def lines(trace: Summary, *, colours: bool) -> list[str]:
    """Give the map and its sums; colours only add to what the characters say."""
    cells = {(one.source, one.dest): one.messages + one.collectives for one in trace.sent}
    names = [f"rank {rank} ({host})" for rank, host in enumerate(trace.hosts)]
    inside = sum(many for (source, dest), many in cells.items() if trace.hosts[source] == trace.hosts[dest])
    sums = {INSIDE: inside, ACROSS: sum(cells.values()) - inside}
    shown = grid.rendered(_map(names, cells), colours=colours)
    shown += ["", "; ".join(f"{format_bytes(many)} {where}" for where, many in sums.items())]
    by_libraries = sum(one.collectives for one in trace.sent)
    if by_libraries:
        text = f"{format_bytes(by_libraries)} of it inside libraries' collectives, whose routes are not known: counted "
        shown += note(f"{text}as if every block went straight to the rank that takes it", "")
    return shown


def _map(names: list[str], cells: Bytes) -> Iterator[Text]:
    largest = max(cells.values(), default=0)
    if len(names) <= grid.IN_FIGURES:
        yield Text("bytes from (row) to (column); K, M, G are powers of 1024")
        figures = {ends: (_figure(many), _shade(many, largest)[1]) for ends, many in cells.items()}
        yield from grid.figures(names, figures)
        return
    yield Text("bytes from (row) to (column), as part of the most that a rank sent to another:")
    key = [f"{mark} from 1/{1 / least:g}" if least else f"{mark} less" for least, mark, _ in _SHADES]
    yield Text(f"  {', '.join(key)}; the most is {format_bytes(largest)}")
    block = grid.block(names)
    if block > 1:
        yield Text(f"  a character for {block} x {block} ranks shows the sum of theirs, as part of the largest sum")
    sums = Counter[tuple[int, int]]()
    for (source, dest), many in cells.items():
        sums[source // block, dest // block] += many
    most = max(sums.values(), default=0)
    yield from grid.shades(names, {place: _shade(many, most) for place, many in sums.items()}, block)


def _figure(many: int) -> str:
    """Write bytes in at most five characters."""
    unit = 0
    while many / 1024**unit >= 999.5 and unit < len(_UNITS) - 1:
        unit += 1
    return f"{many / 1024**unit:.3g}{_UNITS[unit]}"


def _shade(many: int, largest: int) -> tuple[str, str]:
    return next((mark, style) for least, mark, style in _SHADES if many >= least * largest)
