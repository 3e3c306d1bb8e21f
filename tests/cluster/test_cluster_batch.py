"""The jobs on a real Slurm: they run as they are, and however they fail, they say why and are not COMPLETED."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.cluster import state
from bench.cluster.slurm import JobEnd, Slurm
from harness import ROOT, Mpi
from hpccomm.jobs.catalogue import JOBS
from waiting import comes_true

JOB_S = 200.0  # for machines that do much else; jobs take 5 to 10 s
SMALL = ("-e", "16", "-n", "5", "--backend", "mpi4py")
LONG = ("-e", "16", "-n", "1000000", "--budget", "1000", "--backend", "mpi4py")


@dataclass
class Batch:
    """Jobs of one test, in its folder."""

    slurm: Slurm
    folder: Path
    env: Mapping[str, str]

    def submit(self, name: str, *options: str, arguments: Sequence[str] = SMALL) -> int:
        script = ROOT / "jobs" / f"{name}.sbatch"
        return self.slurm.submit(script, *options, arguments=arguments, env=self.env, cwd=self.folder)

    def command(self, *words: str) -> str:
        ran = self.slurm.cluster.run(["env", "-C", str(self.folder), *words], env=self.env)
        return ran.stdout

    def output(self, job: int) -> str:
        return "".join(file.read_text() for file in self.folder.glob(f"*-{job}*.out"))

    def results(self, job: int) -> Path:
        found = [*(self.folder / "hpccomm-results").glob(f"*-{job}.json")]
        return found[0] if found else self.folder / "none"

    def until(self, is_so: Callable[[], bool], job: int) -> None:
        assert comes_true(is_so, JOB_S), self.output(job)

    def end(self, job: int) -> JobEnd:
        return self.slurm.wait(job, timeout_s=JOB_S)


def batch(slurm: Slurm, mpi: Mpi, folder: Path, **env: str) -> Batch:
    return Batch(slurm, folder, {**mpi.environment(), **env})


def assert_complete(jobs: Batch, job: int, *, nodes: int) -> None:
    """See that a job of two ranks succeeded."""
    assert jobs.end(job) == JobEnd("COMPLETED", status=0, signal=0, restarts=0), jobs.output(job)
    assert f"complete: 2 results of 2 ranks in hpccomm-results/{jobs.results(job).name}" in jobs.output(job)
    found = json.loads(jobs.results(job).read_text())
    assert (found["complete"], found["environment"]["nodes"]) == (True, nodes)


@pytest.fixture(autouse=True)
def _no_job_stays(with_slurm: Slurm) -> Iterator[None]:
    yield
    with_slurm.cluster.run(["scancel", "--user=root"])


@pytest.mark.parametrize("name", JOBS)
def test_slurm_takes_each_file(with_slurm: Slurm, name: str) -> None:
    with_slurm.cluster.run(["sbatch", "--test-only", str(ROOT / "jobs" / f"{name}.sbatch")])


def test_srun_starts_the_benchmark(with_slurm: Slurm, mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, mpi, tmp_path)
    job = jobs.submit("bench-cpu", "--nodes=2", "--ntasks-per-node=1")
    assert_complete(jobs, job, nodes=2)


def test_mpirun_starts_the_benchmark_and_passes_settings_on(with_slurm: Slurm, mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, mpi, tmp_path, HPCCOMM_MAX_COUNT="1000")  # ranks with different settings are refused
    job = jobs.submit("bench-mpirun", "--nodes=2", "--ntasks-per-node=1")
    assert_complete(jobs, job, nodes=2)


def test_benchmark_with_a_task_a_gpu(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, one_mpi, tmp_path)
    options = ("--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=2")
    here = ("--device", "cpu", *SMALL)  # the GPUs are in Slurm's books alone
    job = jobs.submit("bench-gpu", *options, arguments=here)
    assert_complete(jobs, job, nodes=1)


def test_heat_map_of_all_nodes(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, one_mpi, tmp_path)
    job = jobs.submit("pairs", "--nodes=4", arguments=("--pairs", "64K", "-n", "3", "--backend", "mpi4py"))
    assert jobs.end(job).state == "COMPLETED", jobs.output(job)
    (matrix,) = json.loads(jobs.results(job).read_text())["pairs"]
    assert len(matrix["edges"]) == 4 * 3


def test_sweep_and_its_collecting_job(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, one_mpi, tmp_path)

    def submitted(*words: str) -> int:
        said = jobs.command(one_mpi.python, "-m", "hpccomm.jobs", "render", *words)
        return int(said.rpartition(" ")[2])

    sizes = ("--sizes", "4:8", "16:16", "--backends", "mpi4py")
    sweep = submitted("sweep", "--nodes", "1", "--ntasks-per-node", "1", *sizes, "--submit", "--", "-n", "5")
    words = ("--sweep", str(sweep), "--dependency", f"afterany:{sweep}", "--submit")
    collecting = submitted("sweep-collect", *words)
    assert jobs.end(collecting).state == "COMPLETED", jobs.output(collecting) + jobs.output(sweep)
    assert f"2 results in hpccomm-results/sweep-{sweep}/sweep.json" in jobs.output(collecting)


def rank_1(slurm: Slurm) -> int:
    """Find the process of the second rank that srun started."""
    for pid in state.processes(slurm.cluster.name):
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"SLURM_PROCID=1" in environ and b"hpccomm.bench" in words and b"srun" not in words[0]:
            return pid
    raise LookupError("no rank 1")


def test_killed_rank_ends_the_job(with_slurm: Slurm, mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, mpi, tmp_path)
    job = jobs.submit("bench-cpu", "--nodes=2", "--ntasks-per-node=1", arguments=LONG)
    jobs.until(lambda: jobs.results(job).exists(), job)
    os.kill(rank_1(with_slurm), signal.SIGKILL)
    end = jobs.end(job)
    assert (end.state, end.restarts) == ("FAILED", 0), jobs.output(job)
    assert "task 1: Killed" in jobs.output(job)
    assert f"found: srun ended with status {end.status}\n" in jobs.output(job)


def test_killed_host_ends_the_job(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    if not one_mpi.is_open_mpi:
        pytest.skip("it is Open MPI's mpirun that ends with 0")
    jobs = batch(with_slurm, one_mpi, tmp_path)
    job = jobs.submit("bench-mpirun", "--nodelist=node1,node4", "--ntasks-per-node=1", "--no-kill", arguments=LONG)
    jobs.until(lambda: jobs.results(job).exists(), job)
    with_slurm.cluster.kill("node4")
    try:
        jobs.until(lambda: "  found: " in jobs.output(job), job)
    finally:  # without the host Slurm would call the job ended half a minute later
        with_slurm.cluster.start("node4")
        with_slurm.serve("node4")
    end = jobs.end(job)
    assert (end.state, end.restarts) == ("FAILED", 0), jobs.output(job)
    assert re.search(r"found: (mpirun ended with status|incomplete after)", jobs.output(job))


def test_cut_link_ends_the_job(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    jobs, cluster = batch(with_slurm, one_mpi, tmp_path), with_slurm.cluster
    options = ("--nodelist=node1,node2", "--nodes=2", "--ntasks-per-node=1")
    job = jobs.submit("bench-cpu", *options, arguments=(*LONG, "--timeout", "8"))
    jobs.until(lambda: jobs.results(job).exists(), job)
    cluster.cut("node2")
    try:
        jobs.until(lambda: "Node failure on node2" in jobs.output(job), job)
    finally:
        cluster.heal("node2")
    end = jobs.end(job)
    assert (end.state, end.restarts) == ("NODE_FAIL", 0), jobs.output(job)


def test_expression_that_sbatch_cut_is_told_to_be_cut(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, one_mpi, tmp_path)
    script = tmp_path / "job.sbatch"
    script.write_text(
        "#!/bin/bash\npython -c 'import os, hpccomm.expression as e; e.load(os.environ[\"HPCCOMM_BACKEND\"])'\n"
    )
    options = ("--output=%x-%j.out", "--export=ALL,HPCCOMM_BACKEND=hierarchical(mpi4py, gloo)")
    job = with_slurm.submit(script, *options, env=jobs.env, cwd=tmp_path)
    assert jobs.end(job).state == "FAILED", jobs.output(job)
    assert "a comma may have cut it: sbatch --export" in jobs.output(job)


def test_slurm_reads_names_as_they_were_given(with_slurm: Slurm, one_mpi: Mpi, tmp_path: Path) -> None:
    jobs = batch(with_slurm, one_mpi, tmp_path)
    name = "../$(touch pwned) `touch pwned` \"q\" 'q' \\ # ; & | * ~ %j \u00e9 <x> (a,b) !"
    words = ("render", "sweep-collect", "--job-name", name, "--submit")
    said = jobs.command(one_mpi.python, "-m", "hpccomm.jobs", *words)
    job = said.split()[-1]
    assert jobs.command("squeue", "--states=all", "--noheader", "--format=%j", f"--jobs={job}") == f"{name}\n"
    assert jobs.end(int(job)).state == "FAILED"  # nothing to collect
    assert [file.name for file in tmp_path.iterdir()] == [f"hpccomm-sweep-collect-{job}.out"]
