"""What the benchmark's suites would find besides tables, by formulas, as its JSON has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from hpccomm.bench.averaging import Averaged, Overlap
from hpccomm.bench.compare import Recorded
from hpccomm.bench.efficiency import Efficiency
from hpccomm.bench.models import TRANSFORMERS
from hpccomm.bench.page import figures
from hpccomm.bench.page.runs import read
from hpccomm.bench.page.sections import sections
from hpccomm.bench.page.sections.section import Section
from hpccomm.bench.page.shapes import Curves
from hpccomm.bench.steadiness import Log
from hpccomm.bench.traffic import Parallel, Timed, traffic
from matrices import by_slot
from reports import recorded

Entry = dict[str, Any]

MIB = 1 << 20
BUCKETS = tuple(4**power * MIB for power in range(4))
BACKWARD_US = 50_000.0
HIDDEN: Mapping[str, tuple[float, ...]] = {
    "mpi4py": (75.0, 61.0, 61.0, 20.0),
    "gloo": (-10.0, -20.0, -30.0, -40.0),
}
"""Percent of the averaging that each bucket size hides."""
WAYS = Parallel(tensor=2, data=2, pipeline=2)
BATCH = 4
HOSTS, NAMES = by_slot(4, 2), ("node1", "node2", "node3", "node4")
LATE = 5
"""The rank of them that is late."""
EFFICIENT = (("all_reduce", "sum"), ("broadcast", None))
REACHED: Mapping[str, tuple[float, ...]] = {"mpi4py": (50.0, 90.0), "gloo": (85.0, 40.0)}
"""Percent of sendrecv's rate in the tables of `EFFICIENT`."""
CALLS = 100
LAST = 83
"""In so many of `CALLS` the late rank is the last one."""


def averaging_us(backend: str, size: int) -> float:
    """Give the time of averaging 64 MiB: small buckets begin often; buckets of more than 16 MiB wait for each other."""
    pieces = 64 * MIB / size
    return {"mpi4py": 10_000.0, "gloo": 40_000.0}[backend] * (1 + pieces / 64 + (size > 16 * MIB))


def bucket_entries(backends: Sequence[str] = tuple(HIDDEN), *, model: str = "gpt2") -> list[Entry]:
    """Give the averaging alone."""
    found = [Averaged(backend, size, averaging_us(backend, size)) for size in BUCKETS for backend in backends]
    return [{"model": model, "scale": 1, **asdict(one)} for one in found]


def overlap_entries(backends: Sequence[str] = tuple(HIDDEN), *, model: str = "gpt2") -> list[Entry]:
    """Give averaging, backward, and both, of which `HIDDEN` is hidden."""

    def overlap(backend: str, size: int) -> Overlap:
        alone, hidden = averaging_us(backend, size), HIDDEN[backend][BUCKETS.index(size)]
        return Overlap(backend, size, alone, BACKWARD_US, BACKWARD_US + alone * (1 - hidden / 100))

    found = [overlap(backend, size) for size in BUCKETS for backend in backends]
    return [{"model": model, "scale": 1, "batch": 32, **one.entries()} for one in found]


def workload_entries(times_us: Mapping[str, Mapping[str, float]], *, model: str = "gpt2") -> list[Entry]:
    """Give a step on 8 ranks, by backend and kind of operation."""
    kinds = traffic(TRANSFORMERS["gpt2"], WAYS, batch=BATCH, scale=1)
    return [
        {
            "model": model,
            "scale": 1,
            "micro_batches": BATCH,
            **asdict(WAYS),
            "backend": backend,
            "kinds": [
                asdict(Timed(**asdict(kind), size_bytes=2 * kind.elements, time_us=times[kind.kind])) for kind in kinds
            ],
        }
        for backend, times in times_us.items()
    ]


def stability_entries(
    hosts: Sequence[int],
    names: Sequence[str],
    *,
    late: int | None = None,
    backends: Sequence[str] = ("mpi4py",),
    growing: float = 0.0,
) -> list[Entry]:
    """Give calls of 100 us, in `LAST` of which a rank comes 50 us late, else rank 0 by 1 us; they may take longer."""
    log = Log()
    for call in range(CALLS):
        is_late = late is not None and call * LAST % CALLS < LAST
        came = [50.0 * (rank == late) if is_late else 1.0 * (rank == 0) for rank in range(len(hosts))]
        end = max(came) + 100 * (1 + growing * call / CALLS) + 900 * (call == 7)
        log.add([[end - one] for one in came])
    found = log.judge(hosts, names, seconds=2.0)
    return [{"backend": backend, "size_bytes": MIB, **found.entries()} for backend in backends]


def efficiency_entries(reached: Mapping[str, Sequence[float]]) -> list[Entry]:
    """Give tables of `EFFICIENT` at 4 MiB on 8 ranks, of which backends reach so many percent of 2 GB/s."""
    return [
        Efficiency(
            {"collective": name, "place": "in", "dtype": "float32", "op": op, "ranks": 8},
            backend,
            4 * MIB,
            2.0 * of[place] / 100,
            2.0,
        ).entries()
        for place, (name, op) in enumerate(EFFICIENT)
        for backend, of in reached.items()
    ]


def starts(ranks: int, *, slow: int) -> list[list[float]]:
    """Give each rank's seconds of imports, init and groups; those of one take long."""
    return [[3.0 if rank == slow else 1.0, 0.5, 0.25] for rank in range(ranks)]


def all_sections(hosts: Sequence[int], names: Sequence[str], *, late: int) -> dict[str, list[Entry]]:
    """Give one of each."""
    times = {
        "mpi4py": {"tensor": 300.0, "data": 2000.0, "pipeline": 700.0},
        "gloo": {"tensor": 900.0, "data": 4000.0, "pipeline": 900.0},
    }
    steady = stability_entries(hosts, names, late=late, backends=("mpi4py", "gloo"))
    steady[1]["course"] = steady[1]["course"][::2]  # its stretches are longer
    return {
        "efficiency": efficiency_entries(REACHED),
        "overlap": overlap_entries(),
        "buckets": bucket_entries(),
        "workloads": workload_entries(times),
        "stability": steady,
    }


def whole(**changed: Any) -> Recorded:
    """Give a run with all of it; `changed` is for `recorded`."""
    changed = {"sections": all_sections(HOSTS, NAMES, late=LATE), "start_up_of_ranks": starts(8, slow=LATE), **changed}
    return recorded(HOSTS, **changed)


def told(run: Recorded) -> dict[str, Section]:
    """Give the page's sections of a run, by anchor."""
    made = read(run)
    return {one.anchor: one for one in sections(made, figures.colours([made]), "run1")}


def curve(section: Section, name: str) -> dict[str, dict[int, float]]:
    """Give the values of a section's curves, by name and place."""
    (found,) = (one for one in section.figures if one.name.endswith(name))
    assert isinstance(found, Curves)
    return {series.name: dict(series.points) for series in found.series}
