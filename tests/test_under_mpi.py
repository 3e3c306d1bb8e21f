"""Run tests/mpi under every MPI at 1 to 4 ranks, one job each, and see that its tests ran on every rank."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from harness import Mpi
from inner_pytest import RankReports, run_pytest

FOLDER = Path(__file__).with_name("mpi")
SIZES = (1, 2, 3, 4)
ODD_SIZE, AT_ODD_SIZE = 5, "test_scheduled.py"  # the smallest that no algorithm is made for
JOB_S = 1200.0

Runner = Callable[[Mpi, int], RankReports]


@pytest.fixture(scope="session")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Give the reports of an MPI at a size; the job runs once."""

    @functools.cache
    def run(mpi: Mpi, np: int) -> RankReports:
        folder = tmp_path_factory.mktemp(f"{mpi.name}-{np}")
        return run_pytest(mpi, np, [FOLDER], folder=folder, timeout_s=JOB_S)

    return run


@pytest.mark.parametrize("np", SIZES)
def test_under_mpi(mpi: Mpi, np: int, ranks: Runner) -> None:
    reports = ranks(mpi, np)
    if reports.problems:
        pytest.fail("\n".join([f"{mpi.name}, {np} ranks:", *reports.problems, str(reports)]), pytrace=False)


def test_algorithms_at_an_odd_size(one_mpi: Mpi, tmp_path: Path) -> None:
    reports = run_pytest(one_mpi, ODD_SIZE, [FOLDER / AT_ODD_SIZE], folder=tmp_path, timeout_s=JOB_S)
    if reports.problems:
        pytest.fail("\n".join([*reports.problems, str(reports)]), pytrace=False)


def test_every_file_ran(mpi: Mpi, ranks: Runner) -> None:
    files = {file.name for file in FOLDER.rglob("test_*.py")}
    ran = set().union(*(ranks(mpi, np).passed_files for np in SIZES))
    assert files, f"no tests in {FOLDER}"
    assert not files - ran, f"no test of these files passed at any number of ranks under {mpi.name}"
