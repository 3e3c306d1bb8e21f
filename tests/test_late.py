"""Jobs in which a rank comes late or never: the others name it, and do not wait beyond their deadline."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path

import pytest

from harness import Mpi, Result, run_job

PROGRAM = str(Path(__file__).with_name("programs") / "late.py")
STOPPED_AT_END = str(Path(__file__).with_name("programs") / "stopped_at_end.py")
STOPPED_INSIDE = str(Path(__file__).with_name("programs") / "stopped_inside.py")
STARTS_LATE = str(Path(__file__).with_name("programs") / "starts_late.py")
DEADLINE_S = 4.0
END_S = 3.0  # from the deadline to the end of mpirun, on a busy machine; 0.6 s otherwise
JOB_S = 200.0
QUIET = {"HPCCOMM_QUIET_S": "1"}
WAITED = r"hpccomm: rank 0 and 1 other have waited (?:1|1\.\d+) s for "


def run(mpi: Mpi, way: str, deadline_s: float) -> Result:
    result = run_job(mpi, 3, [mpi.python, PROGRAM, way, f"{deadline_s}"], env=QUIET, timeout_s=JOB_S)
    assert not result.timed_out, result
    assert not result.leftovers, result
    return result


def begins(result: Result) -> list[float]:
    """Give the times at which ranks began to wait, on the clock of this host."""
    return [float(text) for text in re.findall(r"begins at (\S+)", result.stdout)]


def assert_named(result: Result, rank_and_call: str) -> None:
    assert re.search(WAITED + re.escape(rank_and_call), result.stderr), result


def assert_ended_at_the_deadline(result: Result, whom: str) -> None:
    """See that the ranks that waited told of the missing one and ended the job, with one voice."""
    assert result.returncode != 0, result
    assert result.stderr.count("errors.DeadlineError: ") == 1, result
    assert f"found: rank 0 and 1 other have waited 4 s for {whom}\n" in result.stderr, result
    assert "sum" not in result.stdout, result


def test_rank_that_never_comes_is_named_and_ends_the_job(mpi: Mpi) -> None:
    result = run(mpi, "never", DEADLINE_S)
    waited_s = time.monotonic() - min(begins(result))
    assert_named(result, "rank 2 (start-up: arrival)")
    assert_ended_at_the_deadline(result, "rank 2")
    assert "start-up: arrival of 3 ranks" in result.stderr, result
    first, last = min(begins(result)), max(begins(result))
    assert DEADLINE_S < waited_s < DEADLINE_S + END_S + (last - first), result


def test_stopped_rank_that_goes_on_in_time_is_named_and_all_is_right(one_mpi: Mpi) -> None:
    result = run(one_mpi, "stopped", 60)
    assert_named(result, "rank 2 (start-up: arrival)")
    assert_named(result, "rank 2 (stopped) (world: gather)")
    assert result.returncode == 0, result
    assert result.stdout.count("sum 3\n") == 3, result
    assert "rank 1 and" not in result.stderr, result


def test_rank_that_stays_stopped_is_named_so_and_ends_the_job(mpi: Mpi) -> None:
    result = run(mpi, "stopped for good", DEADLINE_S)
    assert_named(result, "rank 2 (stopped) (world: gather)")
    assert_ended_at_the_deadline(result, "rank 2 (stopped)")


def test_time_in_which_the_whole_job_was_suspended_does_not_count(one_mpi: Mpi) -> None:
    result = run(one_mpi, "suspended", DEADLINE_S)
    assert result.returncode == 0, result
    assert result.stdout.count("sum 3\n") == 3, result


def test_rank_that_comes_after_the_deadline_gets_the_error_of_the_others(one_mpi: Mpi) -> None:
    result = run(one_mpi, "after the deadline", DEADLINE_S)
    text = "start-up: arrival of 3 ranks: rank 0 and 1 other have waited 4 s for rank 2"
    assert sorted(re.findall("rank .: start.*", result.stdout)) == [f"rank {rank}: {text}" for rank in range(3)], result
    assert result.returncode == 7, result


def assert_named_where_mpi_does_not_start(mpi: Mpi, way: str, words: str) -> None:
    """See that a rank is named that the others wait for inside MPI_Init, which has no deadline of its own."""
    result = run_job(mpi, 3, [mpi.python, STARTS_LATE, way, f"{DEADLINE_S}"], env=QUIET, timeout_s=JOB_S)
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode != 0, result
    assert "went on" not in result.stdout, result
    missing = rf"rank 2 \(process \d+\) {words}"
    assert re.search(rf"hpccomm: rank [01] waited \d+ s for MPI to start: .*{missing}", result.stderr), result
    assert re.search(rf"found: waited 4\.\d s for all ranks: .*{missing}", result.stderr), result


def test_rank_that_is_stopped_before_mpi_starts_is_named_and_ends_the_job(mpi: Mpi) -> None:
    assert_named_where_mpi_does_not_start(mpi, "stopped", "is stopped")


def test_rank_that_is_busy_before_mpi_starts_is_named_and_ends_the_job(one_mpi: Mpi) -> None:
    assert_named_where_mpi_does_not_start(one_mpi, "busy", "has not come")


def test_rank_that_is_stopped_while_mpi_ends_is_named_and_ends_the_job(mpi: Mpi) -> None:
    result = run_job(mpi, 3, [mpi.python, STOPPED_AT_END, f"{DEADLINE_S}"], env=QUIET, timeout_s=JOB_S)
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode != 0, result
    assert re.search(
        r"hpccomm: rank . waited [12] s for MPI to end: rank 2 \(process \d+\) is stopped\n", result.stderr
    ), result


def assert_not_held_by_a_stopped_rank(mpi: Mpi, np: int, moment: str, what: str) -> None:
    """See that a rank that stops while MPI makes channels holds no other one there for ever."""
    result = run_job(mpi, np, [mpi.python, STOPPED_INSIDE, f"{DEADLINE_S}", moment], timeout_s=JOB_S)
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode != 0, result
    assert "went on" not in result.stdout, result
    assert f"DeadlineError: {what}" in result.stderr, result
    assert "found: waited 4 s inside MPI for rank 1 (stopped)" in result.stderr, result


@pytest.mark.parametrize("moment", ["start", "group"])
def test_rank_that_is_stopped_while_a_group_is_made_ends_the_job(mpi: Mpi, moment: str) -> None:
    assert_not_held_by_a_stopped_rank(mpi, 2, moment, "make channels of group ")


def test_rank_that_is_stopped_while_the_world_shrinks_ends_the_job(one_mpi: Mpi) -> None:
    if not one_mpi.is_open_mpi:
        pytest.skip("only Open MPI lets a job go on without a rank")
    tolerant = replace(one_mpi, options=(*one_mpi.options, "--with-ft", "ulfm"))
    assert_not_held_by_a_stopped_rank(tolerant, 3, "shrink", "shrink the world")
