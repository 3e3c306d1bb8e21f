"""The training jobs on a real Slurm: warned before their end they are requeued, and go on to the same bits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.cluster.slurm import JobEnd, Slurm
from harness import Mpi
from preempting import Training, straight
from states import state

ARGUMENTS = ("--epochs", "6", "--backend", "mpi4py")
ROUNDS = {"train": 2, "train-mpirun": 1}


@pytest.fixture(autouse=True)
def _no_job_stays(with_slurm: Slurm) -> Iterator[None]:
    yield
    with_slurm.cluster.run(["scancel", "--user=root"])


def test_warned_jobs_go_on_to_the_same_bits(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    env = one_mpi.environment()
    jobs = [Training.submit(with_slurm, name, tmp_path, env, *ARGUMENTS) for name in ROUNDS]

    def warn(job: Training) -> JobEnd:
        for start in range(ROUNDS[job.name]):
            job.warn(start)
        return job.end()

    with ThreadPoolExecutor() as pool:
        ends = [*pool.map(warn, jobs)]
    for job, end in zip(jobs, ends, strict=True):
        assert end == JobEnd("COMPLETED", status=0, signal=0, restarts=ROUNDS[job.name]), job.output
    expected = state(straight(one_mpi, tmp_path, *ARGUMENTS))
    for job in jobs:
        assert len(job.warned) == ROUNDS[job.name], job.output
        assert state(job.checkpoint) == expected, job.output
        found = json.loads(job.checkpoint.with_suffix(".json").read_text())
        assert [one["epoch"] for one in found["results"]] == [*range(6)]
        assert found["results"][-1]["accuracy"] >= 0.95
