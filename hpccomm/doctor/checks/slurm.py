"""Slurm: its version, what it can join ranks by, and whether this job uses what it was given."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpccomm.doctor.case import Case, Facts
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.checks.tools import ask
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.jobs.plugin import listed
from hpccomm.launch import ALONE

_SHOWN = ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_JOB_NUM_NODES", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Ask srun, where Slurm is set up: without its configuration srun would look for one in the network."""
    job = {name: environ[name] for name in _SHOWN if environ.get(name)}
    srun = shutil.which("srun")
    is_set_up = bool(job) or bool(environ.get("SLURM_CONF")) or Path("/etc/slurm/slurm.conf").exists()
    if srun is None or not is_set_up:
        return {"version": "", "mpi": [], "job": job}
    version = ask([srun, "--version"], environ).strip()
    offered = ask([srun, "--mpi=list"], environ)
    return {"version": version, "mpi": listed(offered), "job": job}


def judge(case: Case) -> Iterator[Finding]:
    """An allocation of many tasks from which a single process was started; a plugin that Open MPI needs."""
    for host, facts in case.of_hosts("slurm")[:1]:
        job, library = facts["job"], host.sights[0].facts.get("libraries", {}).get("mpi", "")
        tasks = job.get("SLURM_NTASKS", "")
        if case.trial.launcher == ALONE.name and tasks.isdecimal() and int(tasks) > 1:
            yield Finding(
                Severity.WARNING,
                "slurm",
                f"one process, in a Slurm job of {tasks} tasks",
                found="neither srun nor mpirun started it",
                remedy="put one of them before python in the job script",
                setting="srun python -m hpccomm.doctor",
            )
        if facts["mpi"] and "Open MPI" in library and not any(name.startswith("pmix") for name in facts["mpi"]):
            yield Finding(
                Severity.NOTE,
                "slurm",
                "srun cannot join ranks of Open MPI here",
                found=f"it needs pmix, and srun --mpi=list has {', '.join(facts['mpi'])}",
                remedy="start them with Open MPI's mpirun in the job script",
            )


def show(facts: Facts) -> Iterator[Line]:
    """Give version, plugins and job, where there is Slurm."""
    if facts["version"]:
        yield Line("Slurm", f"{facts['version']}; srun --mpi={'|'.join(facts['mpi']) or 'none'}")
    if facts["job"]:
        yield Line("Slurm job", ", ".join(f"{key[6:]}={value}" for key, value in facts["job"].items()))


CHECK = Check("slurm", look, judge, show)
