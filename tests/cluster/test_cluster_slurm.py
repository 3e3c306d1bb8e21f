"""Slurm: srun starts the ranks, whether the MPI library can join them or not; sbatch runs scripts."""

from __future__ import annotations

from pathlib import Path

from situations import JOB_S, argv, check, environment

from bench.cluster.slurm import JobEnd, Slurm
from harness import Job, Mpi, Result


def srun(slurm: Slurm, mpi: Mpi, *options: str, program: list[str]) -> Result:
    command = slurm.command(["srun", "--nodes=2", *options, *program])
    return Job(command, env=environment(mpi, {})).wait(JOB_S)


def joining(mpi: Mpi) -> str:
    """Give Slurm's name for what joins the ranks of an MPI."""
    return "pmix" if mpi.is_open_mpi else "pmi2"


def test_srun_joins_the_ranks(with_slurm: Slurm, mpi: Mpi) -> None:
    options = (f"--mpi={joining(mpi)}", "--ntasks-per-node=2", "--nodelist=node2,node4")
    result = srun(with_slurm, mpi, *options, program=argv(mpi))
    placement = ("node2", "node2", "node4", "node4")
    topology = "4 ranks on 2 nodes (2 + 2), by slot: node2 0-1, node4 2-3"
    check(result, with_slurm.cluster, placement=placement, topology=topology)


def test_ranks_that_srun_does_not_join_are_refused_once(with_slurm: Slurm, mpi: Mpi) -> None:
    program = [mpi.python, "-c", "import hpccomm; hpccomm.init(); print('went on')"]
    result = srun(with_slurm, mpi, "--mpi=none", program=program)
    assert result.returncode == 1, result
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert "went on" not in result.stdout, result
    assert result.stderr.count("LaunchError: ") == 1, result
    assert f"srun --mpi={joining(mpi)}" in result.stderr, result


def test_batch_job_is_waited_for(with_slurm: Slurm, tmp_path: Path) -> None:
    script, output = tmp_path / "job.sh", tmp_path / "output"
    script.write_text("#!/bin/sh\nsrun hostname\nexit 3\n")
    job = with_slurm.submit(script, "--nodes=4", f"--output={output}")
    assert with_slurm.wait(job, timeout_s=60) == JobEnd("FAILED", status=3, signal=0, restarts=0)
    assert sorted(output.read_text().split()) == list(with_slurm.cluster.names)


def test_host_that_comes_back_serves_again(with_slurm: Slurm) -> None:
    with_slurm.cluster.kill("node3")
    with_slurm.cluster.start("node3")
    with_slurm.serve("node3")
    ran = with_slurm.cluster.run(["srun", "--nodelist=node3", "hostname"])
    assert ran.stdout == "node3\n"
