"""The harness itself: every rank is there and they reach each other."""

from __future__ import annotations

import pytest
from mpi4py import MPI

COMM = MPI.COMM_WORLD


@pytest.mark.mpi
def test_all_ranks_take_part() -> None:
    assert COMM.allreduce(1) == COMM.size


@pytest.mark.mpi(min_size=2)
def test_ranks_are_different() -> None:
    assert sorted(COMM.allgather(COMM.rank)) == list(range(COMM.size))
