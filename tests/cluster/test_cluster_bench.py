"""The benchmark finds the host whose link is slow and the rank that comes late, in figures and in its report."""

from __future__ import annotations

import pytest

from harness import Mpi
from stress.sick import play


@pytest.mark.parametrize("situation", ["link", "late"])
def test_what_is_sick_is_found(situation: str, one_mpi: Mpi) -> None:
    assert play(situation, 1, one_mpi) == []
