"""What many equal calls tell: drift, spikes, and ranks and hosts that come late."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpccomm.bench.page.readings import Steady
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections import by_rank
from hpccomm.bench.page.sections.section import Section, Values
from hpccomm.bench.page.shapes import Across, Curves, Series
from hpccomm.bench.steadiness import DRIFT, REPEATED, RULE, SPIKE, STRETCHES
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_seconds, format_us

_CALL = Across("call", "call")
_MOST_STRAGGLERS = 8


def section(run: Run, palette: Mapping[str, int], name: str) -> Section | None:
    """Give the section, if calls were repeated."""
    found = run.readings.stability
    if not found:
        return None
    return Section(
        anchor="stability",
        title="Many equal calls",
        sentences=[text for one in found for text in sentences(one, run)],
        figures=list(_figures(run, palette, f"{name}-stability")),
        values=[_values(run)],
        rules={
            "words": RULE,
            "curves": f"a point is a stretch of calls at its first one; {STRETCHES} stretches at most. A rank is late "
            "by what it comes later than the earliest rank, in the median call",
        },
    )


def sentences(one: Steady, run: Run) -> Iterator[str]:
    """Say how steady a backend was, and who came late."""
    found, what = one.found, f"{REPEATED} of {format_bytes(one.size_bytes)} over {one.backend}"
    text = f"{what}: {count(found.calls, 'call')} in {format_seconds(found.seconds)}"
    text += f", median {format_us(found.median_us)} us"
    if abs(found.drift) >= DRIFT:
        yield f"{text}; they drifted by {found.drift:+.0%}."
    else:
        yield f"{text}; they did not drift by {DRIFT:.0%} or more."
    longest = f"the longest was call {found.longest_at} with {format_us(found.longest_us)} us"
    yield f"{what}: {count(found.spikes, 'spike')} above {SPIKE:g} times the median; {longest}."
    for late in found.stragglers[:_MOST_STRAGGLERS]:
        by = f"by {format_us(late.late_us)} us in the median call"
        yield f"{what}: {late.name} came late, {by}, and was the last in {late.last:.0%} of the calls."
    if not found.stragglers and len(found.last) > 1:
        rank = max(range(len(found.last)), key=found.last.__getitem__)
        most = f"{run.rank(rank)} was the last most often, in {found.last[rank]:.0%} of the calls"
        yield f"{what}: no host or rank is a straggler; {most} (an equal share is {1 / len(found.last):.0%})."


def _figures(run: Run, palette: Mapping[str, int], name: str) -> Iterator[Curves]:
    found, ranks = run.readings.stability, by_rank.across(run)
    median, longest, late, last = (
        tuple(Series(one.backend, palette[one.backend], points) for one, points in zip(found, of_all, strict=True))
        for of_all in (
            [tuple((part.first, part.median_us) for part in one.found.course) for one in found],
            [tuple((part.first, part.longest_us) for part in one.found.course) for one in found],
            [by_rank.points(one.found.late_us) for one in found],
            [by_rank.points([100 * share for share in one.found.last]) for one in found],
        )
    )
    yield Curves(
        f"{name}-course", f"{REPEATED}: its course", "time (us, median)", "us", median, _CALL, logarithmic=False
    )
    yield Curves(
        f"{name}-longest",
        f"{REPEATED}: the longest calls",
        "time (us, longest)",
        "us",
        longest,
        _CALL,
        logarithmic=False,
    )
    if len(run.node_of_rank) > 1:
        yield Curves(f"{name}-late", "how late ranks come", "late (us, median)", "us", late, ranks, logarithmic=False)
        yield Curves(f"{name}-last", "which ranks come last", "last (% of calls)", "%", last, ranks, logarithmic=False)


def _values(run: Run) -> Values:
    head = ("backend", "size", "calls", "duration", "median (us)", "drift", "spikes", "longest (us)", "its number")
    rows = [
        (
            one.backend,
            format_bytes(one.size_bytes),
            str(one.found.calls),
            format_seconds(one.found.seconds),
            format_us(one.found.median_us),
            f"{one.found.drift:+.1%}",
            str(one.found.spikes),
            format_us(one.found.longest_us),
            str(one.found.longest_at),
        )
        for one in run.readings.stability
    ]
    return Values(REPEATED, head, rows)
