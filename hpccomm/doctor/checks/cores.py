"""Cores against ranks and threads: too few cores make everything slow, and too many threads do."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hpccomm.doctor.case import Case, Facts, Host
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.checks.tools import read
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.topology.cores import hosts
from hpccomm.topology.grouping import count

_UNBIND = {
    "Open MPI": "mpirun --bind-to none …",
    "MPICH": "mpirun -bind-to none …",
    "Intel MPI": "export I_MPI_PIN=0",
    "Slurm": "srun --cpus-per-task=1 --cpu-bind=cores …",
}


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read which cores this process may use, and how many threads it was told to use."""
    quota = _quota(read("/sys/fs/cgroup/cpu.max"))
    threads = environ.get("OMP_NUM_THREADS", "")
    return {"cores": sorted(os.sched_getaffinity(0)), "of": os.cpu_count() or 1, "quota": quota, "threads": threads}


def _quota(text: str) -> float | None:
    """Read how many cores' time the control group may use; None for no limit."""
    with suppress(ValueError, ZeroDivisionError):
        limit, period = text.split()
        return int(limit) / int(period)
    return None


def judge(case: Case) -> Iterator[Finding]:
    """Compare cores with ranks, then with threads, on each host."""
    heard = [case.of_ranks(host, "cores") for host in case.hosts]
    if not all(len(facts) == len(host.sights) for host, facts in zip(case.hosts, heard, strict=True)):
        return
    affinities = [frozenset(sight.facts["cores"]["cores"]) for sight in case.sights]
    for host, found, facts in zip(case.hosts, hosts(case.topology, affinities), heard, strict=True):
        few = _few_cores(case, host, found.cores, facts[0])
        yield from few
        if not any(finding.severity for finding in few):
            yield from _many_threads(host, found.cores, facts)


def _few_cores(case: Case, host: Host, cores: int, facts: Facts) -> list[Finding]:
    ranks, there = host.num_ranks, facts["of"]
    quota = facts["quota"]
    if quota is not None and quota < min(ranks, cores):
        what = f"{count(ranks, 'rank')} of {host.name} may use the time of {quota:g} cores"
        remedy = "ask the container or the batch system for more CPUs, or start fewer ranks"
        return [Finding(Severity.WARNING, "cores", what, "the control group has a quota (cpu.max)", remedy)]
    if ranks <= cores:
        return []
    what = f"{count(ranks, 'rank')} share {count(cores, 'core')} of {host.name}"
    if cores < there:
        found = f"the host has {there} cores, but these ranks are bound to {count(cores, 'core')}"
        remedy = "bind each rank to cores of its own, or none; and no taskset or cpuset around the launcher"
        return [Finding(Severity.WARNING, "cores", what, found, remedy, _unbind(case))]
    found = "that is all it has: right results, but every message waits for a core"
    return [Finding(Severity.NOTE, "cores", what, found, "for speed, start as many ranks as there are cores")]


def _unbind(case: Case) -> str:
    return next((line for name, line in _UNBIND.items() if name in case.trial.launcher), "")


def _many_threads(host: Host, cores: int, facts: list[Facts]) -> Iterator[Finding]:
    of_torch = [sight.facts.get("libraries", {}).get("threads", 0) for sight in host.sights]
    threads = [used or _asked(one["threads"]) for used, one in zip(of_torch, facts, strict=True)]
    worst = max(range(len(threads)), key=lambda at: threads[at] - len(facts[at]["cores"]))
    fits = max(1, cores // host.num_ranks)
    if threads[worst] > len(facts[worst]["cores"]):
        held = len(facts[worst]["cores"])
        what = f"a rank of {host.name} runs {threads[worst]} threads on {count(held, 'core')}"
    elif sum(threads) > cores and max(threads) > 1:
        what = f"{count(host.num_ranks, 'rank')} of {host.name} run {sum(threads)} threads on {count(cores, 'core')}"
    else:
        return
    found = f"OMP_NUM_THREADS is {facts[worst]['threads'] or 'unset: torch takes a thread for each core'}"
    remedy = "give each rank as many threads as it has cores for itself"
    yield Finding(Severity.WARNING, "cores", what, found, remedy, f"export OMP_NUM_THREADS={fits}")


def _asked(text: str) -> int:
    first = text.partition(",")[0]
    return int(first) if first.isdecimal() else 0


def show(facts: Facts) -> Iterator[Line]:
    """Say how many cores there are for the rank that looked."""
    quota = "" if facts["quota"] is None else f", the time of {facts['quota']:g}"
    threads = f"OMP_NUM_THREADS={facts['threads']}" if facts["threads"] else "OMP_NUM_THREADS unset"
    yield Line("cores", f"a rank may use {len(facts['cores'])} of {facts['of']}{quota}; {threads}")


CHECK = Check("cores", look, judge, show, scope="rank")
