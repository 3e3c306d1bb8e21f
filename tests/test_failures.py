"""Jobs that end: one rank fails while the others wait for it, or all of them leave without closing their world."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from harness import ROOT, Job, Mpi, Result, run_job
from hpccomm.bootstrap.abort import JobGuard
from hpccomm.errors import BackendError, DeadlineError
from outcomes import assert_ended_by_rank_1
from waiting import comes_true

PROGRAMS = Path(__file__).with_name("programs")
JOB_S = 200.0
LEFT_S = 5.0  # from the launcher's end to that of the last rank

# how the last rank ends -> exit status of the job, and what its output says
ON_EVERY_MPI = {
    "raise": (1, "ZeroDivisionError: integer division"),
    "exit": (3, "exit status 3"),
}
ON_ONE_MPI = {
    "with": (3, "exit status 3"),
    "text": (1, "it went wrong"),
    "argparse": (2, "exit status 2"),
    "interrupt": (130, "KeyboardInterrupt"),
    "closed stdout": (1, "ZeroDivisionError: integer division"),
    "no stdout": (1, "ZeroDivisionError: integer division"),
}


def run(mpi: Mpi, program: str, *arguments: str) -> Result:
    return run_job(mpi, 2, [mpi.python, str(PROGRAMS / program), *arguments], timeout_s=JOB_S)


def assert_ended_by_the_last_rank(result: Result, status: int, text: str) -> None:
    assert_ended_by_rank_1(result, status, text)
    assert "[rank 0" not in result.stderr, result


@pytest.mark.parametrize("way", ON_EVERY_MPI)
def test_failing_rank_ends_the_job(mpi: Mpi, way: str) -> None:
    assert_ended_by_the_last_rank(run(mpi, "one_fails.py", way), *ON_EVERY_MPI[way])


@pytest.mark.parametrize("way", ON_ONE_MPI)
def test_rank_that_fails_in_another_way_ends_the_job(one_mpi: Mpi, way: str) -> None:
    result = run(one_mpi, "one_fails.py", way)
    assert_ended_by_the_last_rank(result, *ON_ONE_MPI[way])
    assert result.stderr.count("a-program: error: unrecognized arguments") == (way == "argparse")


def test_a_rank_that_cannot_say_why_it_fails_ends_the_job_too(one_mpi: Mpi) -> None:
    result = run(one_mpi, "one_fails.py", "closed stderr")
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode == 1, result
    assert "went on" not in result.stdout, result


def test_setting_of_one_rank_ends_the_job_with_one_error(one_mpi: Mpi) -> None:
    result = run(one_mpi, "one_fails.py", "setting")
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode == 1, result
    assert result.stderr.count("errors.OptionError: read HPCCOMM_BACKEND") == 1, result
    assert "unset on rank 0; 'gloo' on rank 1" in result.stderr, result


def assert_told_once(result: Result, rank: int) -> None:
    """See that a rank tells of its left-over RANK, which says that it is the other one, and ends the job."""
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode == 1, result
    assert result.stderr.count("errors.LaunchError: ") == 1, result
    assert f"[rank {rank} on " in result.stderr, result
    assert f"RANK={1 - rank}, but " in result.stderr, result


def test_left_over_variable_is_told_before_mpi_starts(mpi: Mpi) -> None:
    """The other rank, which the variable fits, waits in MPI_Init meanwhile."""
    assert_told_once(run(mpi, "one_fails.py", "left over", "1"), 0)


def test_left_over_variable_is_told_by_a_rank_that_rank_0_leaves_alone(one_mpi: Mpi) -> None:
    assert_told_once(run(one_mpi, "one_fails.py", "left over", "0"), 1)


def test_ranks_may_leave_without_closing_and_exits_be_caught(mpi: Mpi) -> None:
    result = run(mpi, "leave.py")
    assert result.returncode == 0, result
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.stdout.splitlines() == ["sum 2", "sum 2"], result


@pytest.mark.parametrize("found", ["no room", "rank 1: no room", "nothing from rank 1"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_a_report_tells_the_cause_once(capfd: pytest.CaptureFixture[str], found: str, everywhere: bool) -> None:
    cause = BackendError("build backend shm", found="no room", remedy="make room")
    error = DeadlineError("gather", found=found, remedy="look", everywhere=everywhere)
    error.__cause__ = cause
    JobGuard().report(type(error), error, None)
    told = capfd.readouterr().err
    assert told.count(f"found: {found}\n") == told.count("no room") == 1


OWN_PROGRAMS = {
    "bench": ["hpccomm.bench"],
    "doctor": ["hpccomm.doctor"],
    "run": ["hpccomm.run", str(PROGRAMS / "torch_only.py")],
    "tune": ["hpccomm.tune", "--table", "never.json"],
    "tune --explain": ["hpccomm.tune", "--explain"],
}
SLOW_TORCH = """
import os, pathlib, time
pathlib.Path(__file__).with_name(f"{os.getpid()}").touch()
time.sleep(600)
"""


@pytest.mark.parametrize("name", OWN_PROGRAMS)
def test_ranks_whose_launcher_is_killed_while_they_import_torch_end(one_mpi: Mpi, tmp_path: Path, name: str) -> None:
    (tmp_path / "torch.py").write_text(SLOW_TORCH)
    env = {**one_mpi.environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with Job(one_mpi.command(2, [one_mpi.python, "-m", *OWN_PROGRAMS[name]]), env=env, cwd=tmp_path) as job:
        assert comes_true(lambda: len([*tmp_path.glob("[0-9]*")]) == 2, JOB_S), job.stderr
        job.process.kill()
        job.process.wait()
        assert comes_true(lambda: not job.pids(), LEFT_S), job.pids()


LEFT_BEHIND = """if True:
    import os, time
    while os.getppid() == int(os.environ["PARENT"]):
        time.sleep(0.01)
    if os.getppid() == 1:
        import hpccomm
        hpccomm.init(timeout_s=60)
    print("went on")
"""


def test_a_rank_whose_launcher_was_killed_before_it_started_ends_at_once(one_mpi: Mpi) -> None:
    """Open MPI's library would look for its launcher for some seconds."""
    env = {**one_mpi.environment(), "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    script = 'PARENT=$$ "$0" -c "$1" & sleep 0.5'
    command = ["sh", "-c", script, one_mpi.python, LEFT_BEHIND]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    if "went on" in done.stdout:
        pytest.skip("the first process does not take in what others leave behind")
    assert "the launcher is gone, so this rank ends too" in done.stderr
