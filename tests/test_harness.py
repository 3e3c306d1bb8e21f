"""The harness under tests that fail, hang, and leave processes behind."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import textwrap
import time
from pathlib import Path

import pytest

from harness import MPIS_VARIABLE, Job, Mpi, known_mpis, run_job
from inner_pytest import RankReports, run_pytest

MPI_FOLDER = Path(__file__).with_name("mpi")


def run_ranks(mpi: Mpi, folder: Path, body: str, *, np: int = 2, hang_s: float = 30) -> RankReports:
    """Run one MPI test file made of `body`, with the conftest.py of tests/mpi."""
    tests, reports = folder / "tests", folder / "reports"
    tests.mkdir()
    reports.mkdir()
    shutil.copy(MPI_FOLDER / "conftest.py", tests)
    head = "import os, sys, time, pytest\nfrom mpi4py import MPI\nCOMM = MPI.COMM_WORLD\n"
    (tests / "test_it.py").write_text(head + textwrap.dedent(body))
    return run_pytest(mpi, np, [tests], folder=reports, timeout_s=60, hang_s=hang_s)


def test_failing_rank_ends_the_job_with_its_report(mpi: Mpi, tmp_path: Path) -> None:
    body = """
    @pytest.mark.mpi
    def test_one_fails():
        assert COMM.rank != 1, "rank 1 does not come"
        COMM.Barrier()
    """
    reports = run_ranks(mpi, tmp_path, body)
    assert reports.job.returncode != 0
    assert not reports.job.timed_out
    assert not reports.job.leftovers
    assert reports.problems
    assert "[rank 1 of 2] " in reports.logs[1]
    assert "AssertionError: rank 1 does not come" in str(reports)


def test_file_that_one_rank_cannot_import_ends_the_job(mpi: Mpi, tmp_path: Path) -> None:
    body = """
    if COMM.rank == 1:
        raise ImportError("not on this rank")

    @pytest.mark.mpi
    def test_waits():
        COMM.Barrier()
    """
    reports = run_ranks(mpi, tmp_path, body)
    assert not reports.job.timed_out
    assert "ImportError: not on this rank" in reports.logs[1]
    assert reports.problems


def test_hanging_ranks_show_their_stacks_and_end(mpi: Mpi, tmp_path: Path) -> None:
    body = """
    @pytest.mark.mpi
    def test_hangs():
        wait_in_vain() if COMM.rank == 1 else COMM.Barrier()

    def wait_in_vain():
        time.sleep(1000)
    """
    reports = run_ranks(mpi, tmp_path, body, hang_s=3)
    assert reports.job.returncode != 0
    assert not reports.job.timed_out
    assert not reports.job.leftovers
    assert "in test_hangs" in reports.logs[0]
    assert "in wait_in_vain" in reports.logs[1]


def test_outcomes_that_differ_between_ranks_are_a_problem(mpi: Mpi, tmp_path: Path) -> None:
    body = """
    @pytest.mark.mpi
    def test_runs():
        pass

    @pytest.mark.mpi
    def test_one_skips():
        if COMM.rank == 1:
            pytest.skip("alone")

    def test_without_mpi():
        assert False
    """
    reports = run_ranks(mpi, tmp_path, body)
    assert reports.job.returncode == 0, reports
    assert len(reports.problems) == 1, reports.problems
    assert "test_one_skips': ['passed', 'skipped']" in reports.problems[0]
    assert reports.passed_files == {"test_it.py"}
    assert len(re.findall(r"\d passed", reports.job.stdout)) == 1, "one rank reports to the terminal"


def test_job_without_a_passed_test_is_a_problem(mpi: Mpi, tmp_path: Path) -> None:
    reports = run_ranks(mpi, tmp_path, "@pytest.mark.mpi(min_size=5)\ndef test_large(): pass", np=1)
    assert reports.job.returncode == 0, reports
    assert reports.problems == ["no test passed"]


def test_job_at_its_deadline_shows_stacks_and_leaves_nothing(mpi: Mpi) -> None:
    program = """if True:
    import subprocess, sys, time
    def wait_in_vain():
        time.sleep(1000)
    null = subprocess.DEVNULL
    subprocess.Popen(["setsid", "sleep", "1000"], stdin=null, stdout=null, stderr=null)
    print("started", flush=True)
    wait_in_vain()
    """
    with Job(mpi.command(2, [mpi.python, "-c", program]), env=mpi.environment()) as job:
        while job.stdout.count("started") < 2 and job.process.poll() is None:
            time.sleep(0.1)
        result = job.wait(0.5)
    assert result.timed_out
    assert result.returncode != 0
    assert "started" in result.stdout
    assert "in wait_in_vain" in result.stderr
    assert len(result.leftovers) == 2, result
    assert all("sleep 1000" in process for process in result.leftovers), result
    assert job.pids() == []


def test_job_knows_its_ranks(mpi: Mpi) -> None:
    program = "echo ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} $$; exec sleep 1000"
    with Job(mpi.command(2, ["sh", "-c", program]), env=mpi.environment()) as job:
        while job.stdout.count("\n") < 2 and job.process.poll() is None:
            time.sleep(0.1)
        said = {int(rank): int(pid) for rank, pid in map(str.split, job.stdout.splitlines())}
        assert job.ranks() == said
        assert sorted(said) == [0, 1]


def test_job_that_ignores_termination_leaves_nothing() -> None:
    job = Job(["bash", "-c", "trap '' TERM; sleep 1000 & wait"], env=os.environ)
    result = job.wait(1)
    assert result.timed_out
    assert len(result.leftovers) == 2, result
    assert job.pids() == []


def test_job_left_by_an_exception_leaves_nothing(mpi: Mpi) -> None:
    job = Job(mpi.command(2, ["sleep", "1000"]), env=mpi.environment())
    with pytest.raises(KeyError), job:
        raise KeyError
    assert job.pids() == []


def test_killed_mpirun_leaves_no_folder_that_its_number_would_meet_again(one_mpi: Mpi) -> None:
    with Job(one_mpi.command(1, ["sleep", "1000"]), env=one_mpi.environment()) as job:
        session = Path(tempfile.gettempdir()) / f"ompi.{job.process.pid}"
        while not (job.ranks() and session.exists()) and job.process.poll() is None:
            time.sleep(0.1)
        job.process.kill()
        job.process.wait()
        assert session.exists()
    assert not session.exists()


def test_job_gives_status_output_and_environment(mpi: Mpi, tmp_path: Path) -> None:
    program = "import os, sys; print(os.getcwd(), os.environ['OMP_NUM_THREADS'], os.environ['WORD']); sys.exit(3)"
    result = run_job(mpi, 1, [mpi.python, "-c", program], env={"WORD": "said"}, timeout_s=30, cwd=tmp_path)
    assert result.returncode == 3
    assert f"{tmp_path} 1 said" in result.stdout
    assert not result.timed_out
    assert not result.leftovers


def test_known_mpis_are_read_from_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MPIS_VARIABLE, "first=/a, second=/b")
    assert known_mpis() == [Mpi("first", Path("/a")), Mpi("second", Path("/b"))]
    assert "/a/bin/python" in str(known_mpis()[0].missing)
    monkeypatch.setenv(MPIS_VARIABLE, "/a")
    with pytest.raises(ValueError, match=MPIS_VARIABLE):
        known_mpis()
