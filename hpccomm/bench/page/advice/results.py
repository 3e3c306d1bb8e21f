"""Rules of results that are missing, wrong, or less than they seem."""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.bench.page.advice.rule import Advice
from hpccomm.bench.page.runs import Measured, Point, Run
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes

NOISY = 2.0
NOISY_SHARE = 0.25


def incomplete(run: Run) -> Iterator[Advice]:
    """Tell of a run that was ended."""
    if not run.complete:
        yield Advice(f"{run.name} is of a run that did not end", "tables and sizes are missing", "measure again")


def wrong(run: Run) -> Iterator[Advice]:
    """Tell of a backend once, and of all pairs once."""
    bad: dict[str, list[tuple[Measured, Point]]] = {}
    for table in run.tables:
        for point in table.points:
            if point.error:
                bad.setdefault(point.backend, []).append((table, point))
    for backend, found in bad.items():
        table, point = found[0]
        where = f"{table.title} of {format_bytes(point.size)}"
        yield Advice(
            f"{backend} failed or was wrong at {count(len(found), 'row')}, first at {where}",
            str(point.error),
            "leave it out until this is understood",
        )
    for matrix in run.matrices:
        if matrix.is_broken:
            wrong = sum(edge.wrong > 0 for edge in matrix.edges)
            reason = matrix.error or f"wrong bytes came from or to {count(wrong, 'pair')}"
            yield Advice(f"pairs over {matrix.backend} failed", reason, "look at these hosts' memory, cables and logs")


def fell_back(run: Run) -> Iterator[Advice]:
    """Tell of a backend once."""
    falls = {point.backend: point.fell_back for table in run.tables for point in table.points if point.fell_back}
    for backend, text in falls.items():
        yield Advice(
            f"{backend} fell back, {text}",
            "its figures are those of what it fell back to",
            "mend what failed, or leave it out",
        )


def not_built(run: Run) -> Iterator[Advice]:
    """Say why."""
    for backend, why in dict(run.environment.get("not_built", {})).items():
        yield Advice(
            f"{backend} could not be built", str(why), "run python -m hpccomm.doctor, which says what is missing"
        )


def noisy(run: Run) -> Iterator[Advice]:
    """Count rows of all tables."""
    points = [point for table in run.tables for point in table.points if point.time_us and point.p95_us]
    rough = [point for point in points if (point.p95_us or 0) > NOISY * (point.time_us or 0)]
    if len(rough) > NOISY_SHARE * len(points):
        yield Advice(
            f"{len(rough)} of {count(len(points), 'row')} have a 95th percentile above {NOISY:g} times the median",
            "something else runs beside the ranks, or they move between cores",
            "bind ranks to cores, keep the hosts to this job, and repeat more (-n, --budget)",
        )


def unchecked(run: Run) -> Iterator[Advice]:
    """Leave out what has no data."""
    if any(point.wrong is None and not point.error and point.size for table in run.tables for point in table.points):
        yield Advice("results were not checked (-c 0)", "they may be wrong", "measure without -c 0")


def unknown_to_rings(run: Run) -> Iterator[Advice]:
    """Busbw assumes a flat ring."""
    names = {point.backend for table in run.tables for point in table.points if point.busbw_gbps}
    if any(name.startswith("hierarchical(") for name in names):
        yield Advice(
            "busbw of hierarchical backends is nominal",
            "it is defined by what a flat ring sends, and a hierarchy sends less between nodes",
            "compare hierarchies by their times, or by the rate between nodes (--wide)",
        )
