"""Some hundred random cases of all collectives, and that the program notices what is wrong; `tests/fuzz` plays more."""

from __future__ import annotations

import re
import shlex

from fuzz.draw import DTYPES, EXPRESSIONS, draw
from fuzz.kinds import COLLECTIVES
from harness import Mpi, Result, run_job

RANKS = 4
NODES = ("AAAA", "AABB", "ABAB")
JOB_S = 180.0


def fuzz(mpi: Mpi, *options: str) -> Result:
    return run_job(mpi, RANKS, [mpi.python, "-m", "tests.fuzz", *options], timeout_s=JOB_S)


def test_cases_depend_on_the_seed_and_their_number_alone() -> None:
    cases = [draw(1, number, NODES) for number in range(3000)]
    assert draw(1, 2999, NODES) == cases[-1]
    assert draw(2, 2999, NODES) != cases[-1]
    parts = [part for case in cases for part in case.parts]
    assert {part.collective for part in parts} == set(COLLECTIVES)
    assert {part.dtype for part in parts} == set(DTYPES)
    assert {case.expression for case in cases} == set(EXPRESSIONS)


def test_random_cases(one_mpi: Mpi) -> None:
    result = fuzz(one_mpi, "--cases", "300", "--seed", "1")
    assert result.returncode == 0, str(result)
    assert "300 cases, 0 wrong" in result.stdout


def test_a_wrong_result_is_noticed_and_its_line_plays_it_again(one_mpi: Mpi) -> None:
    result = fuzz(one_mpi, "--cases", "40", "--most-wrong", "1", "--expression", "faulty(mpi4py, wrong)")
    assert result.returncode != 0, str(result)
    assert "expected" in result.stdout
    line = re.search(r"again: mpirun -np 4 python -m tests\.fuzz (.*)", result.stdout)
    assert line is not None, str(result)
    again = fuzz(one_mpi, *shlex.split(line[1]))
    assert again.returncode != 0, str(again)
    assert "1 cases, 1 wrong" in again.stdout
    assert line[0] in again.stdout


def test_a_hang_is_ended_and_told(one_mpi: Mpi) -> None:
    options = ("--cases", "40", "--most-wrong", "1", "--deadline", "2", "--expression", "faulty(mpi4py, hang)")
    result = fuzz(one_mpi, *options)
    assert result.returncode != 0, str(result)
    assert not result.timed_out, str(result)
    assert "again: mpirun -np 4 python -m tests.fuzz --seed 1 --expression 'faulty(mpi4py, hang)'" in result.stdout
