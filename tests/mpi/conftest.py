"""What each rank does on top of pytest: name itself, report, and end the whole job when it fails or hangs.

test_under_mpi.py starts this folder; by hand:
``mpirun -np 2 .venv/bin/python -m mpi4py -m pytest --only-mpi tests/mpi/test_harness.py``.

HPCCOMM_TEST_REPORTS: folder for rankR.log (failures and stacks) and rankR.xml; unset, standard error serves.
HPCCOMM_TEST_HANG_S: seconds that one test may take.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any, TextIO

import pytest

FOLDER = os.environ.get("HPCCOMM_TEST_REPORTS")
HANG_S = float(os.environ.get("HPCCOMM_TEST_HANG_S", "90"))
STACKS_S = 3.0  # all ranks have shown their stacks before the first one ends and takes the others along


class Rank:
    """This process in the job."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self.comm = MPI.COMM_WORLD
        self.log: TextIO = sys.__stderr__ or sys.stderr
        if FOLDER:
            self.log = Path(FOLDER, f"rank{self.comm.rank}.log").open("w")  # noqa: SIM115 - open to the end

    def watch(self) -> None:
        """Start the clock anew: stacks at HANG_S, then death by the kernel's alarm, which needs no Python."""
        faulthandler.dump_traceback_later(HANG_S, file=self.log)
        signal.setitimer(signal.ITIMER_REAL, HANG_S + STACKS_S)

    def say(self, text: str) -> None:
        """Write to this rank's log at once."""
        self.log.write(f"{text}\n")
        self.log.flush()

    def fail(self, what: str, report: str) -> None:
        """Report a failure and end the job, since the other ranks would wait for this one."""
        self.say(f"[rank {self.comm.rank} of {self.comm.size}] {what} failed\n{report}")
        if self.comm.size > 1:
            time.sleep(1)  # let ranks that fail too say so
            self.comm.Abort(1)


rank: Rank | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Give each rank its own files, and the terminal to rank 0 alone."""
    global rank
    if not config.getoption("--only-mpi"):
        return
    rank = Rank()
    rank.watch()
    if FOLDER:
        config.option.xmlpath = f"{FOLDER}/rank{rank.comm.rank}.xml"
        config.option.basetemp = f"{FOLDER}/tmp{rank.comm.rank}"
    if rank.comm.rank:  # pytest's terminal reporter takes what it finds; removed, it is missed by assertion texts
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - open to the end


def pytest_sessionstart() -> None:
    """Give the tests their standard output back."""
    if rank and rank.comm.rank and sys.__stdout__:
        sys.stdout = sys.__stdout__


@pytest.fixture(autouse=True)
def device_of_tensors() -> Generator[None, None, None]:
    """Have tests make their tensors on the rank's GPU, where tests/gpu asks for that; the world has chosen it."""
    if os.environ.get("HPCCOMM_TEST_DEVICE") != "cuda":
        yield
        return
    import torch

    torch.set_default_device("cuda")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Give every test, and what follows the last one, its own time."""
    if rank is None:
        return (yield)
    rank.watch()
    if FOLDER:
        rank.say(f"at {item.nodeid}")
    result = yield
    rank.watch()
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """End the job at a failed test."""
    if rank and report.failed:
        rank.fail(f"{report.nodeid} ({report.when})", report.longreprtext)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """End the job at a file that cannot be imported."""
    if rank and report.failed:
        rank.fail(f"collection of {report.nodeid}", report.longreprtext)


def pytest_internalerror(excrepr: object) -> None:
    """End the job at an error of pytest itself."""
    if rank:
        rank.fail("pytest", str(excrepr))
