"""Worlds for tests inside ranks: any backend on any pretended placement of nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mpi4py import MPI

import hpccomm

COMM = MPI.COMM_WORLD

in_few_ranks = pytest.mark.skipif(
    COMM.size > 3 and MPI.get_vendor()[0] != "Open MPI",
    reason="ranks of this MPI hold the cores that they wait on, so that these tests take many minutes",
)

PLACEMENTS = {
    5: ["AABBC"],
    1: ["A"],
    2: ["AA", "AB"],
    3: ["AAB", "ABA", "ABC"],
    4: ["AABB", "ABAB", "ABBA", "AAAB", "ABCC"],
}
"""Node of each rank, for every number of ranks that is tested."""

_HERE = PLACEMENTS[COMM.size]
CASES = [
    ("A" * COMM.size, "mpi4py"),
    ("A" * COMM.size, "gloo"),
    ("A" * COMM.size, "shm(crossover=1)"),
    *((placement, "hierarchical(mpi4py, gloo)") for placement in _HERE),
    (_HERE[0], "hierarchical(gloo, mpi4py)"),
    (_HERE[-1], "hierarchical(shm(crossover=1), hierarchical(mpi4py, gloo, by=1))"),
]
"""Placement and backend of every world that collectives are tested in."""


@contextmanager
def world(placement: str, backend: str, *, timeout_s: float = 30.0) -> Iterator[hpccomm.World]:
    """Give a world whose rank i is on the node that the placement's i-th letter names."""
    os.environ["HPCCOMM_NODE_ID"] = placement[COMM.rank]
    try:
        with hpccomm.init(backend, timeout_s=timeout_s) as made:
            yield made
    finally:
        del os.environ["HPCCOMM_NODE_ID"]
