"""The shell's limits (ulimit) against what many ranks and fast networks take."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpccomm.doctor.case import Case, Facts, names
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.units import format_bytes

_INFINIBAND = Path("/sys/class/infiniband")
_FEWEST_FILES, _FILES_A_RANK = 256, 4  # a rank holds sockets to all others, twice over with Gloo beside MPI
_FEWEST_PROCESSES = 512  # the kernel counts threads, and a rank with torch has dozens


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the soft limits and what they may be raised to; None for no limit."""
    kinds = {"memlock": resource.RLIMIT_MEMLOCK, "nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    both = {name: resource.getrlimit(kind) for name, kind in kinds.items()}
    soft = {name: _known(limits[0]) for name, limits in both.items()}
    hard = {name: _known(limits[1]) for name, limits in both.items()}
    return {"soft": soft, "hard": hard, "infiniband": _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir())}


def _known(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit


def judge(case: Case) -> Iterator[Finding]:
    """Find hosts whose limits are too low for this job."""
    least = {"nofile": max(_FEWEST_FILES, _FILES_A_RANK * case.trial.size), "nproc": _FEWEST_PROCESSES}
    whys = {"nofile": f"{case.trial.size} ranks connect with each other", "nproc": "it counts threads too"}
    options = {"nofile": "-n", "nproc": "-u"}
    for name, need in least.items():
        low = [(host, facts) for host, facts in case.of_hosts("limits") if (facts["soft"][name] or need) < need]
        if low:
            hosts, facts = names([host for host, _ in low]), low[0][1]
            hard = facts["hard"][name]
            yield Finding(
                Severity.WARNING,
                "limits",
                f"at most {facts['soft'][name]} {'open files' if name == 'nofile' else 'processes'} on {hosts}",
                found=f"{whys[name]}; {need} are needed, and up to {hard or 'any number'} may be set",
                remedy="raise it where the job starts, on all hosts (with Slurm: before sbatch)",
                setting=f"ulimit {options[name]} {hard if hard is not None and hard < 4 * need else 4 * need}",
            )
    locked = [
        host for host, facts in case.of_hosts("limits") if facts["infiniband"] and facts["soft"]["memlock"] is not None
    ]
    if locked:
        yield Finding(
            Severity.WARNING,
            "limits",
            f"locked memory is limited on {names(locked)}, which has InfiniBand",
            found="memory is locked for such a network: without, MPI and NCCL fall back to TCP, or fail",
            remedy="raise it on all hosts (with Slurm: in slurmd's unit, LimitMEMLOCK=infinity)",
            setting="ulimit -l unlimited",
        )


def show(facts: Facts) -> Iterator[Line]:
    """Give all three."""
    soft = facts["soft"]
    memory = "any" if soft["memlock"] is None else format_bytes(soft["memlock"])
    files, processes = (soft[name] if soft[name] is not None else "any" for name in ("nofile", "nproc"))
    yield Line("limits", f"locked memory {memory}, open files {files}, processes {processes}")


CHECK = Check("limits", look, judge, show)
