"""python -m hpccomm.run: torchrun-style programs under mpirun, and alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness import Job, Mpi, Result, known_mpis, run_job
from outcomes import assert_ended_by_rank_1, assert_success
from traces import spans, valid

PROGRAMS = Path(__file__).with_name("programs")
JOB_S = 200.0


def run(mpi: Mpi, np: int, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return run_job(mpi, np, [mpi.python, "-m", "hpccomm.run", *arguments], env=env, timeout_s=JOB_S, cwd=PROGRAMS)


def alone(*arguments: str) -> Result:
    command = [sys.executable, "-m", "hpccomm.run", *arguments]
    return Job(command, env=known_mpis()[0].environment(), cwd=PROGRAMS).wait(JOB_S)


def assert_told(result: Result, size: int, arguments: Sequence[str]) -> None:
    """See that every rank of torchrun_style.py found its variables, its arguments and the others."""
    assert_success(result)
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert sorted(one["variables"]["RANK"] for one in told) == list(range(size))
    for one in told:
        rank = one["variables"]["RANK"]
        expected = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": size, "GROUP_RANK": 0}
        assert one == {"variables": expected, "arguments": arguments, "sum": size * (size + 1) / 2, "beside": True}


def test_torch_finds_hpccomm_by_name_and_all_of_it_is_traced(one_mpi: Mpi, tmp_path: Path) -> None:
    result = run(one_mpi, 4, "torch_only.py", env={"HPCCOMM_TRACE": str(tmp_path)})
    assert_success(result)
    (trace,) = tmp_path.iterdir()
    assert all(spans(valid(trace), rank, "operations") for rank in range(4))
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 4 is done" for rank in range(4)]


def test_script_runs_as_under_torchrun(mpi: Mpi) -> None:
    arguments = ["--timeout", "7", "-m", "leave"]
    assert_told(run(mpi, 2, "torchrun_style.py", *arguments), 2, arguments)


def test_module_runs_from_the_working_directory() -> None:
    result = alone("--timeout", "60", "-m", "torchrun_style", "--words", "two words")
    assert_told(result, 1, ["--words", "two words"])


def test_script_may_call_init_itself(one_mpi: Mpi) -> None:
    result = run(one_mpi, 2, "reduce.py", "-", "gloo")
    assert_success(result)
    lines = [f"{asked} on 00: {[3.0] * 5}" for asked in ("- is mpi4py", "gloo is gloo")]
    assert sorted(result.stdout.splitlines()) == sorted(lines * 2)


def test_script_alone_may_call_init_itself() -> None:
    result = alone("reduce.py", "gloo", "auto")
    assert_success(result)
    assert [line.endswith(f"on 0: {[1.0] * 5}") for line in result.stdout.splitlines()] == [True, True], result


def test_bare_exit_of_one_rank_is_the_jobs(mpi: Mpi) -> None:
    assert_ended_by_rank_1(run(mpi, 2, "run_fails.py"), 3, "exit status 3")


def test_program_is_asked_for() -> None:
    result = alone()
    assert result.returncode == 2, result
    assert "usage: mpirun … python -m hpccomm.run" in result.stderr, result
    assert "PROGRAM" in result.stderr, result
