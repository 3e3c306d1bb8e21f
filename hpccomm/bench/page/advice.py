"""Warnings: what in a run makes its figures worse than they need be, or less than they seem; pure.

A rule is a function from a run to advice; a new one is one more function in `RULES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hpccomm.bench.layout import format_rate
from hpccomm.bench.page.runs import Measured, Point, Run
from hpccomm.bench.page.sections.overlap import best
from hpccomm.bench.page.summary import MOST_SLOW
from hpccomm.bench.pairs.heat import describe
from hpccomm.bench.pairs.matrix import ACROSS, BANDWIDTH
from hpccomm.bench.pairs.outliers import find
from hpccomm.bench.steadiness import DRIFT
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

USED_WELL = 0.8
NOISY = 2.0
_NOISY_SHARE = 0.25
_AHEAD = 1.2
_ON_RINGS = ("all_reduce", "all_gather", "reduce_scatter")
"""Collectives whose busbw is what a flat ring sends over every link, so that it can be held against a link."""


@dataclass(frozen=True)
class Advice:
    """A warning.

    Attributes:
        figure: What was found.
        reason: Why it matters.
        setting: What to do.
    """

    figure: str
    reason: str
    setting: str


def advice(run: Run) -> list[Advice]:
    """Give all warnings of a run."""
    return [one for rule in RULES for one in rule(run)]


def _incomplete(run: Run) -> Iterator[Advice]:
    if not run.complete:
        yield Advice(f"{run.name} is of a run that did not end", "tables and sizes are missing", "measure again")


def _wrong(run: Run) -> Iterator[Advice]:
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
            "do not use it before this is understood",
        )
    for matrix in run.matrices:
        if matrix.is_broken:
            wrong = sum(edge.wrong > 0 for edge in matrix.edges)
            reason = matrix.error or f"wrong bytes came from or to {count(wrong, 'pair')}"
            yield Advice(f"pairs over {matrix.backend} failed", reason, "look at these hosts' memory, cables and logs")


def _fell_back(run: Run) -> Iterator[Advice]:
    falls = {point.backend: point.fell_back for table in run.tables for point in table.points if point.fell_back}
    for backend, text in falls.items():
        yield Advice(f"{backend} fell back", text, "its figures are those of what it fell back to")


def _not_built(run: Run) -> Iterator[Advice]:
    for backend, why in dict(run.environment.get("not_built", {})).items():
        yield Advice(f"{backend} could not be built", str(why), "python -m hpccomm.doctor says what is missing")


def _crowded(run: Run) -> Iterator[Advice]:
    crowded = [host for host in run.hosts if host.is_oversubscribed]
    if crowded:
        worst = max(crowded, key=lambda host: host.ranks / max(host.cores, 1))
        others = f"; {len(crowded)} of {count(len(run.hosts), 'host')} have more ranks than cores" * (len(crowded) > 1)
        yield Advice(
            f"{worst.name} has {worst.ranks} ranks on {count(worst.cores, 'core')}" + others,
            "times include waiting for a core",
            "start at most as many ranks as cores, or give the job more cores (Slurm: --cpus-per-task)",
        )


def _one_host(run: Run) -> Iterator[Advice]:
    if len(run.hosts) == 1 and len(run.node_of_rank) > 1:
        virtual = len({*run.node_of_rank}) > 1
        yield Advice(
            f"all ranks are on {run.hosts[0].name}" + ", cut into virtual nodes" * virtual,
            "MPI goes through memory and Gloo over loopback: nothing here tells of a network or of hierarchies over it",
            "measure on two hosts or more",
        )


def _without_mpi(run: Run) -> Iterator[Advice]:
    if run.environment.get("mpi") == "none" and len(run.node_of_rank) > 1:
        yield Advice(
            "MPI does not join the ranks",
            "only Gloo was there to choose, which uses TCP alone",
            "start with mpirun or srun --mpi=pmix; python -m hpccomm.doctor says what is in the way",
        )


def _gloo_ahead(run: Run) -> Iterator[Advice]:
    """Between hosts TCP should not beat an MPI that uses the network as it is meant to be used."""
    for table in run.tables if len(run.hosts) > 1 else ():
        size, times = max(table.times.items(), default=(0, {}))
        if {"gloo", "mpi4py"} <= times.keys() and times["mpi4py"] > _AHEAD * times["gloo"]:
            yield Advice(
                f"{table.full_title}: gloo is {times['mpi4py'] / times['gloo']:.2g} times as fast as mpi4py at "
                f"{format_bytes(size)}",
                "MPI may not use the fast network, or only one of several interfaces",
                "see which transport MPI takes (Open MPI: --mca pml_base_verbose 10, UCX_TLS; MPICH: FI_PROVIDER)",
            )


def _link_unused(run: Run) -> Iterator[Advice]:
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
                "the largest size is too small, ranks wait for each other, or the algorithm sends more than it must",
                "try larger buffers, ring(mpi4py), or hierarchical(mpi4py, ring(mpi4py))",
            )


def _slow(run: Run) -> Iterator[Advice]:
    for matrix in run.matrices:
        for one in find(matrix)[:MOST_SLOW]:
            yield Advice(
                f"{describe(one)}, over {matrix.backend}",
                "every operation that it takes part in waits for it",
                "look at its cable, the speed and errors of its port (ethtool), and what else runs there; else leave "
                "it out",
            )


def _noisy(run: Run) -> Iterator[Advice]:
    points = [point for table in run.tables for point in table.points if point.time_us and point.p95_us]
    noisy = [point for point in points if (point.p95_us or 0) > NOISY * (point.time_us or 0)]
    if len(noisy) > _NOISY_SHARE * len(points):
        yield Advice(
            f"{len(noisy)} of {count(len(points), 'row')} have a 95th percentile above {NOISY:g} times the median",
            "something else runs beside the ranks, or they move between cores",
            "bind ranks to cores, keep the hosts to this job, and repeat more (-n, --budget)",
        )


def _unchecked(run: Run) -> Iterator[Advice]:
    if any(point.wrong is None and not point.error and point.size for table in run.tables for point in table.points):
        yield Advice("results were not checked (-c 0)", "they may be wrong", "measure without -c 0")


def _unknown_to_rings(run: Run) -> Iterator[Advice]:
    """Busbw assumes a flat ring."""
    names = {point.backend for table in run.tables for point in table.points if point.busbw_gbps}
    if any(name.startswith("hierarchical(") for name in names):
        yield Advice(
            "busbw of hierarchical backends is nominal",
            "it is defined by what a flat ring sends, and a hierarchy sends less between nodes",
            "compare hierarchies by their times, and see wire_GBps_per_node in the JSON file",
        )


def _hindered(run: Run) -> Iterator[Advice]:
    for model, found in run.readings.overlap.items():
        for backend, one in best(found).items():
            if one.hidden_percent <= 0:
                yield Advice(
                    f"{backend} hides nothing of averaging the gradients of {model} under backward",
                    "both at once take as long as one after the other, or longer, even with the best bucket size",
                    "leave cores free for the thread that averages, or average after backward in few large buckets",
                )


def _late(run: Run) -> Iterator[Advice]:
    for one in run.readings.stability:
        for late in one.found.stragglers[:MOST_SLOW]:
            yield Advice(
                f"{late.name} comes late over {one.backend}, the last in {late.last:.0%} of "
                f"{count(one.found.calls, 'call')}",
                f"every call waits for the last rank, {format_us(late.late_us)} us here in the median",
                "look at what else runs there, its clock and its memory; else leave it out",
            )


def _drifting(run: Run) -> Iterator[Advice]:
    for one in run.readings.stability:
        if abs(one.found.drift) >= DRIFT:
            yield Advice(
                f"{one.backend} drifted by {one.found.drift:+.0%} from the first fifth of the calls to the last",
                "a short run says too little of a long one",
                "look at clocks and temperatures, and at what else began or ended meanwhile",
            )


RULES: tuple[Callable[[Run], Iterator[Advice]], ...] = (
    _incomplete,
    _wrong,
    _fell_back,
    _not_built,
    _crowded,
    _one_host,
    _without_mpi,
    _gloo_ahead,
    _link_unused,
    _slow,
    _hindered,
    _late,
    _drifting,
    _noisy,
    _unchecked,
    _unknown_to_rings,
)
