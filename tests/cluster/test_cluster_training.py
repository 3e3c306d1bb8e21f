"""The training jobs on a real Slurm: warned they are requeued, after a lost host launched again, to the same bits."""

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
FAILS = """
import pathlib, sys
if "--saves" in sys.argv:
    file = pathlib.Path(sys.argv[sys.argv.index("--checkpoint") + 1])
    beside = file.with_suffix(".new")
    beside.write_text("")
    beside.replace(file)
print("fails on purpose")
sys.exit(3)
"""


@pytest.fixture(autouse=True)
def _no_job_stays(with_slurm: Slurm) -> Iterator[None]:
    yield
    with_slurm.cluster.run(["scancel", "--user=root"])


def test_jobs_that_are_warned_or_lose_a_host_go_on_to_the_same_bits(
    with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path
) -> None:
    env = one_mpi.environment()
    (tmp_path / "spare").mkdir()

    def submit(name: str, folder: Path, hosts: str, **fields: int) -> Training:
        return Training.submit(
            with_slurm, name, folder, env, *ARGUMENTS, options=(f"--nodelist=node[{hosts}]",), **fields
        )

    jobs = [submit(name, tmp_path, "1-2") for name in ROUNDS]
    loses = submit("train", tmp_path / "spare", "1,3-4", nodes=3, spares=1)

    def end(job: Training) -> JobEnd:
        if job is loses:
            job.lose("node3", 0)
        for start in range(0 if job is loses else ROUNDS[job.name]):
            job.warn(start)
        return job.end()

    with ThreadPoolExecutor() as pool:
        ends = [*pool.map(end, [*jobs, loses])]
    expected = state(straight(one_mpi, tmp_path, *ARGUMENTS))
    for job, ended in zip([*jobs, loses], ends, strict=True):
        restarts = 0 if job is loses else ROUNDS[job.name]
        assert ended == JobEnd("COMPLETED", status=0, signal=0, restarts=restarts), job.output
        if job is not loses:
            assert all(rows > 0 for _, rows in job.begun[1:]), job.output  # epochs are saved with none
        assert state(job.checkpoint) == expected, job.output
        found = json.loads(job.checkpoint.with_suffix(".json").read_text())
        assert [one["epoch"] for one in found["results"]] == [*range(6)]
        assert found["results"][-1]["accuracy"] >= 0.95
    assert "LOST node3: launch 2 of at most 4, with 2 ranks on node1,node4, checkpoint " in loses.output
    assert 1 <= loses.begun[1][0] < 6


@pytest.mark.parametrize(("saves", "launches"), [(False, 1), (True, 3)])
def test_what_fails_is_launched_again_while_it_saves(
    with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path, saves: bool, launches: int
) -> None:
    program, arguments = tmp_path / "fails.py", ("--saves",) * saves
    program.write_text(FAILS)
    fields = {"nodes": 1, "program": str(program), "relaunches": 2}
    job = Training.submit(with_slurm, "train", tmp_path, one_mpi.environment(), *arguments, **fields)
    assert job.end() == JobEnd("FAILED", status=3, signal=0, restarts=0), job.output
    assert job.output.count("fails on purpose") == launches, job.output
    assert job.output.count("LOST no host: launch ") == launches - 1, job.output
    assert f"launch {launches} ended with status 3" in job.output, job.output
