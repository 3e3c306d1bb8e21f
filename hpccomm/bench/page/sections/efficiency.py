"""How near the collectives come to what ranks send each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpccomm.bench.efficiency import RULE, Efficiency
from hpccomm.bench.layout import format_rate
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections.section import Section, Values
from hpccomm.bench.page.shapes import Bar, Bars
from hpccomm.units import format_bytes

RULES = {
    "efficiency": RULE,
    "above 100 %": "busbw is defined by what a flat ring sends; what sends less over the slowest link, as a hierarchy "
    "does, may have more of it than that link carries",
}


def section(run: Run, palette: Mapping[str, int], name: str) -> Section | None:
    """Give the section, if tables were held against sendrecv."""
    tables: dict[str, list[Efficiency]] = {}
    for one in run.readings.efficiency:
        tables.setdefault(one.table, []).append(one)
    if not tables:
        return None
    for found in tables.values():
        found.sort(key=lambda one: -one.percent)
    return Section(
        anchor="efficiency",
        title="Collectives against sendrecv",
        sentences=[sentence(table, found) for table, found in tables.items()],
        figures=[_figure(table, found, f"{name}-efficiency{n}") for n, (table, found) in enumerate(tables.items(), 1)],
        values=[Values("efficiency", ("table", "backend", "size", "busbw (GB/s)", "efficiency"), list(_rows(tables)))],
        rules=RULES,
    )


def sentence(table: str, found: Sequence[Efficiency]) -> str:
    """Say how much of sendrecv's rate the backends of a table reach, the best first."""
    best, *others = found
    limit = f"of the {format_rate(best.limit_gbps)} GB/s that ranks send each other"
    text = f"{table}: {best.percent:.0f} % {limit}, with {best.backend} at {format_bytes(best.size_bytes)}"
    return "; ".join([text, *(f"{one.percent:.0f} % with {one.backend}" for one in others)]) + "."


def _figure(table: str, found: Sequence[Efficiency], name: str) -> Bars:
    return Bars(
        name=name,
        title=f"{table}: efficiency",
        label="highest busbw (% of sendrecv's)",
        unit="%",
        parts=("highest busbw over that of sendrecv",),
        rows=tuple(Bar(one.backend, (one.percent,)) for one in found),
    )


def _rows(tables: Mapping[str, Sequence[Efficiency]]) -> Iterator[tuple[str, ...]]:
    for table, found in tables.items():
        for one in found:
            rate = format_rate(one.busbw_gbps)
            yield table, one.backend, format_bytes(one.size_bytes), rate, f"{one.percent:.0f} %"
