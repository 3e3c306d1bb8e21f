"""Rules of what is slower than it need be: links, hosts, ranks and buckets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from hpccomm.bench.averaging import Averaged
from hpccomm.bench.layout import format_rate
from hpccomm.bench.page.advice.rule import Advice
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections.by_bucket import of_backends
from hpccomm.bench.page.sections.overlap import best
from hpccomm.bench.page.summary import ALIKE, MOST_SLOW
from hpccomm.bench.pairs.heat import describe
from hpccomm.bench.pairs.matrix import ACROSS, BANDWIDTH
from hpccomm.bench.pairs.outliers import find
from hpccomm.bench.steadiness import DRIFT
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

USED_WELL = 0.8
DDP_BUCKET = 25 << 20
_ON_RINGS = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives whose busbw is what a flat ring sends over every link, so that it can be held against a link."""
_LINK = (
    "the largest size is too small, ranks wait for each other, or the algorithm sends more than it must",
    "try larger buffers, ring(mpi4py), or hierarchical(mpi4py, ring(mpi4py))",
)

Found = TypeVar("Found", bound=Averaged)


def link_unused(run: Run) -> Iterator[Advice]:
    """Hold the highest busbw against what pairs between two hosts reach together."""
    rates = [(matrix, matrix.medians(BANDWIDTH).get(ACROSS)) for matrix in run.matrices]
    links = [rate * min(map(matrix.hosts.count, {*matrix.hosts})) for matrix, rate in rates if rate]
    for table in run.tables if links else ():
        peak = max(table.points, key=lambda point: point.busbw_gbps or 0.0)
        used = (peak.busbw_gbps or 0.0) / max(links)
        if table.collective in _ON_RINGS and 0 < used < USED_WELL:
            yield Advice(
                f"{table.full_title}: the link is used to {used:.0%}, below {USED_WELL:.0%} "
                f"({format_rate(peak.busbw_gbps)} of {format_rate(max(links))} GB/s that pairs of two hosts reach)",
                *_LINK,
            )


def below_sendrecv(run: Run) -> Iterator[Advice]:
    """Hold the best backend of a table against sendrecv, whose ranks load the links as a ring's do."""
    most: dict[str, float] = {}
    for one in run.readings.efficiency if not run.matrices else ():
        if one.what["collective"] in _ON_RINGS:
            most[one.table] = max(most.get(one.table, 0.0), one.percent)
    for table, percent in most.items():
        if percent < 100 * USED_WELL:
            yield Advice(
                f"{table}: the link is used to {percent:.0f} % of what sendrecv makes of it, below {USED_WELL:.0%}",
                *_LINK,
            )


def slow(run: Run) -> Iterator[Advice]:
    """Name the worst of each matrix."""
    for matrix in run.matrices:
        for one in find(matrix)[:MOST_SLOW]:
            yield Advice(
                f"{describe(one)}, over {matrix.backend}",
                "every operation that it takes part in waits for it",
                "look at its cable, the speed and errors of its port (ethtool), and what else runs there; else leave "
                "it out",
            )


def hindered(run: Run) -> Iterator[Advice]:
    """Judge each backend by its shortest step."""
    for model, found in run.readings.overlap.items():
        for backend, one in best(found).items():
            if one.hidden_percent <= 0:
                yield Advice(
                    f"{backend} hides nothing of averaging the gradients of {model} under backward",
                    "both at once take as long as one after the other, or longer, even with the best bucket size",
                    "leave cores free for the thread that averages, or average after backward in few large buckets",
                )


def late(run: Run) -> Iterator[Advice]:
    """Name the latest hosts and ranks."""
    for one in run.readings.stability:
        for last in one.found.stragglers[:MOST_SLOW]:
            yield Advice(
                f"{last.name} comes late over {one.backend}, the last in {last.last:.0%} of "
                f"{count(one.found.calls, 'call')}",
                f"every call waits for the last rank, {format_us(last.late_us)} us here in the median",
                "look at what else runs there, its clock and its memory; else leave it out",
            )


def drifting(run: Run) -> Iterator[Advice]:
    """Tell of either direction."""
    for one in run.readings.stability:
        if abs(one.found.drift) >= DRIFT:
            yield Advice(
                f"{one.backend} drifted by {one.found.drift:+.0%} from the first fifth of the calls to the last",
                "a short run says too little of a long one",
                "look at clocks and temperatures, and at what else began or ended meanwhile",
            )


def small_buckets(run: Run) -> Iterator[Advice]:
    """Hold the largest bucket that DDP makes by default against the best one."""
    alone, both = run.readings.buckets, run.readings.overlap
    yield from (one for model, found in alone.items() for one in _small(model, found, lambda one: one.averaging_us))
    yield from (one for model, found in both.items() for one in _small(model, found, lambda one: one.both_us))


def _small(model: str, found: Sequence[Found], time_us: Callable[[Found], float]) -> Iterator[Advice]:
    for backend, of_backend in of_backends(found).items():
        usual = [one for one in of_backend if one.bucket_bytes <= DDP_BUCKET]
        least = min(of_backend, key=time_us)
        if usual and least.bucket_bytes > DDP_BUCKET and time_us(usual[-1]) > ALIKE * time_us(least):
            times = time_us(usual[-1]) / time_us(least)
            small, large = format_bytes(usual[-1].bucket_bytes), format_bytes(least.bucket_bytes)
            yield Advice(
                f"gradients of {model} over {backend}: buckets of {small} take {times:.3g} times as long as "
                f"those of {large}",
                "every bucket pays for the start of an operation, and DDP makes them of 25 MiB by default",
                f"give DistributedDataParallel bucket_cap_mb={least.bucket_bytes >> 20}",
            )
