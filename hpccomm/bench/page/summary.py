"""What was found, in sentences, by rules that the page states; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpccomm.bench.layout import format_rate
from hpccomm.bench.page.runs import Measured, Run
from hpccomm.bench.pairs.heat import describe
from hpccomm.bench.pairs.matrix import ACROSS, BANDWIDTH, INSIDE, LATENCY, Matrix
from hpccomm.bench.pairs.outliers import find, none_slow
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

ALIKE = 1.1
MOST_SLOW = 8

RULE = (
    f"A backend that is within {(ALIKE - 1) * 100:.0f} % of the fastest is as good as it; of those, the one is named "
    "that stays so over most of the larger sizes, so that there are as few changes as can be. Times are medians over "
    "repetitions of the slowest rank's time."
)


@dataclass(frozen=True)
class Span:
    """A backend and the sizes for which it is the one to use."""

    backend: str
    sizes: tuple[int, ...]


def sentences(run: Run) -> list[str]:
    """Say what to use, how fast it is, and what is slow."""
    found = [sentence for table in run.plain for sentence in _of_table(table)]
    return found + [sentence for matrix in run.matrices for sentence in _of_pairs(matrix)]


def spans(table: Measured) -> list[Span]:
    """Cut the sizes into as few spans as can be, in each of which one backend is as good as the fastest."""
    good = [
        (size, [name for name, time in times.items() if time <= ALIKE * min(times.values())])
        for size, times in table.times.items()
    ]
    found, at = [], 0
    while at < len(good):
        size = good[at][0]
        lasts = {name: _last(good[at:], name) for name in good[at][1]}
        best = max(lasts, key=lambda name: (lasts[name], -table.times[size][name]))
        found.append(Span(best, tuple(size for size, _ in good[at : at + lasts[best]])))
        at += lasts[best]
    return found


def _last(good: Sequence[tuple[int, list[str]]], name: str) -> int:
    """Count the sizes from the first on at which a backend is good."""
    return next((place for place, (_, names) in enumerate(good) if name not in names), len(good))


def _of_table(table: Measured) -> Iterator[str]:
    found, backends = spans(table), {name for times in table.times.values() for name in times}
    if not found:
        yield f"{table.full_title}: nothing was measured."
        return
    if len(backends) > 1:
        yield f"{table.full_title}: use {_ranges(found)}.{_one_for_all(table, found)}"
    peak = max(table.points, key=lambda point: point.busbw_gbps or 0.0)
    if peak.busbw_gbps:
        where = f"{peak.backend} at {format_bytes(peak.size)}"
        yield f"{table.full_title}: the highest bus bandwidth is {format_rate(peak.busbw_gbps)} GB/s, by {where}."


def _ranges(found: Sequence[Span]) -> str:
    """Write ``A below 64 KiB, B from 64 KiB to 1 MiB, C above``."""
    if len(found) == 1:
        sizes = found[0].sizes
        where = " at all sizes" if len(sizes) > 1 else f" at {format_bytes(sizes[0])}" * (sizes[0] > 0)
        return found[0].backend + where
    parts = [f"{found[0].backend} below {format_bytes(found[1].sizes[0])}"]
    parts += [f"{span.backend} from {format_bytes(span.sizes[0])} on" for span in found[1:]]
    return ", ".join(parts)


def _one_for_all(table: Measured, found: Sequence[Span]) -> str:
    """Say what a single backend costs, where there is a choice to make."""
    if len(found) == 1:
        return ""
    worst = {
        name: max(times[name] / min(times.values()) for times in table.times.values())
        for name in table.backends
        if all(name in times for times in table.times.values())
    }
    if not worst:
        return ""
    name = min(worst, key=worst.__getitem__)
    return f" If it must be one for all sizes: {name}, at most {worst[name]:.2g} times as slow as the fastest."


def _of_pairs(matrix: Matrix) -> Iterator[str]:
    rates, latencies = matrix.medians(BANDWIDTH), matrix.medians(LATENCY)
    for kind in (INSIDE, ACROSS):
        if kind in rates and kind in latencies:
            figures = f"{format_us(latencies[kind])} us, {format_rate(rates[kind])} GB/s"
            yield f"Pairs of ranks {kind} over {matrix.backend}: {figures} (medians)."
    slow = find(matrix)
    for one in slow[:MOST_SLOW]:
        yield f"Slow over {matrix.backend}: {describe(one)}."
    if len(slow) > MOST_SLOW:
        yield f"{count(len(slow) - MOST_SLOW, 'more outlier')} over {matrix.backend}, see the heat map."
    if not slow:
        yield f"Pairs over {matrix.backend}: {none_slow(matrix)}."
