"""Plain pytest runs everything but tests/mpi; test_under_mpi.py starts that folder under each MPI."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from harness import Mpi, known_mpis

# Tests time nothing: the machine may do much else meanwhile.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Turn a TERM into an interrupt, so that running jobs are ended and the summary is written."""
    if not config.getoption("--only-mpi"):
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave tests/mpi to the ranks of an MPI job."""
    is_mpi = collection_path == Path(__file__).with_name("mpi")
    return True if is_mpi and not config.getoption("--only-mpi") else None


@pytest.fixture(params=known_mpis(), ids=lambda mpi: mpi.name, scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each MPI at hand; one that is missing skips the test, and fails it in continuous integration."""
    mpi: Mpi = request.param
    if mpi.missing and os.environ.get("CI") == "true":
        pytest.fail(mpi.missing, pytrace=False)
    if mpi.missing:
        pytest.skip(mpi.missing)
    return mpi


@pytest.fixture
def one_mpi() -> Mpi:
    """Give the first MPI at hand, for what does not depend on which it is."""
    usable = [mpi for mpi in known_mpis() if not mpi.missing]
    if not usable:
        pytest.skip("no MPI")
    return usable[0]
