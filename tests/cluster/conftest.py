"""Tests on several hosts: what they need of the machine, or else they are skipped, or fail where it could."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`, however pytest was started

from bench.cluster import slurm, state
from bench.cluster.cluster import Cluster

_passed: list[str] = []
_SHARE = 0.8  # of those collected; a few cannot run under every MPI


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count the tests on several hosts that passed."""
    if report.when == "call" and report.passed and report.nodeid.startswith("tests/cluster/"):
        _passed.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """In continuous integration, see that they were run for real."""
    here = [item for item in session.items if item.nodeid.startswith("tests/cluster/")]
    in_ci = os.environ.get("CI") == "true" and os.geteuid() == 0 and not session.config.option.collectonly
    if in_ci and len(_passed) < _SHARE * len(here):
        print(f"\nonly {len(_passed)} of {len(here)} tests on several hosts passed", file=sys.stderr)
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED


def require(reason: str | None) -> None:
    """Skip for a reason; in continuous integration, root's machine has to be made fit instead."""
    if reason and os.environ.get("CI") == "true" and os.geteuid() == 0:
        pytest.fail(reason, pytrace=False)
    if reason:
        pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def _hosts() -> None:
    require(state.unavailable())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Four hosts on one network."""
    with Cluster(hosts=4) as made:
        yield made


@pytest.fixture(scope="module")
def with_slurm() -> Iterator[slurm.Slurm]:
    """Four hosts with Slurm."""
    require(slurm.missing())
    with Cluster(hosts=4) as made:
        started = slurm.Slurm(cluster=made)
        started.start()
        yield started
