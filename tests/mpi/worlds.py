"""Worlds and groups for tests inside ranks: any backend on any pretended placement of nodes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib.util import find_spec

import pytest
import torch.distributed as dist
from mpi4py import MPI

import hpccomm

COMM = MPI.COMM_WORLD

FEW_RANKS = pytest.mark.skipif(COMM.size > 3, reason="a third rank is the last that changes anything")
in_few_ranks = pytest.mark.skipif(
    COMM.size > 3 and MPI.get_vendor()[0] != "Open MPI",
    reason="ranks of this MPI hold the cores that they wait on, so that these tests take many minutes",
)


def by_this_mpi(backends: Sequence[str]) -> list[str]:
    """Give those of some backends in which this MPI has a part: where gloo does all, one MPI, Open MPI, is enough."""
    return [one for one in backends if "mpi4py" in one or "gloo" not in one or MPI.get_vendor()[0] == "Open MPI"]


PLACEMENTS = {
    5: ["AABBC"],
    1: ["A"],
    2: ["AA", "AB"],
    3: ["AAB", "ABA", "ABC"],
    4: ["AABB", "ABAB", "ABBA", "AAAB", "ABCC"],
}
"""Node of each rank, for every number of ranks that is tested."""

_HERE = PLACEMENTS[COMM.size]
LEAVES = by_this_mpi(["mpi4py", "gloo", "shm(crossover=1)"])
_ON_HOST = [
    *(("A" * COMM.size, leaf) for leaf in LEAVES),
    *((placement, "hierarchical(mpi4py, gloo)") for placement in _HERE),
    (_HERE[0], "hierarchical(gloo, mpi4py)"),
    (_HERE[-1], "hierarchical(shm(crossover=1), hierarchical(mpi4py, gloo, by=1))"),
]
ON_GPU = os.environ.get("HPCCOMM_TEST_DEVICE") == "cuda"
"""Whether tests/gpu has started these tests for tensors on GPUs."""

_ALL = "A" * COMM.size
CASES = (
    _ON_HOST
    if not ON_GPU
    else [
        (_ALL, "nccl"),
        (_ALL, "nccl(accumulate=float32)"),
        *([(_ALL, "nccl_cupy")] if find_spec("cupy") else []),
        (_ALL, "mpi4py"),
        (_ALL, "gloo"),
        (_ALL, "ring(nccl)"),
        (_ALL, "ring(mpi4py)"),
        *((placement, "hierarchical(nccl, mpi4py)") for placement in _HERE),
        (_HERE[-1], "hierarchical(mpi4py, nccl)"),
        (_HERE[-1], "hierarchical(nccl, nccl)"),
    ]
)
"""Placement and backend of every world that collectives are tested in."""


def is_first(world: hpccomm.World) -> bool:
    """Tell whether the placement of a world is the first one of its backend in CASES."""
    first = next(placement for placement, backend in CASES if backend == world.backend)
    return world.topology.nodes == tuple(map(sorted(set(first)).index, first))


def is_bare_nccl(world: hpccomm.World) -> bool:
    """Tell whether NCCL itself reduces and sends: it has no bitwise operators and no tags."""
    return "nccl" in world.backend and not world.backend.startswith("ring")


@contextmanager
def world(placement: str, backend: str, *, timeout_s: float = 30.0) -> Iterator[hpccomm.World]:
    """Give a world whose rank i is on the node that the placement's i-th letter names."""
    os.environ["HPCCOMM_NODE_ID"] = placement[COMM.rank]
    if aware := os.environ.get("HPCCOMM_TEST_CUDA_AWARE"):
        os.environ["HPCCOMM_CUDA_AWARE"] = aware
    try:
        with hpccomm.init(backend, timeout_s=timeout_s) as made:
            yield made
    finally:
        del os.environ["HPCCOMM_NODE_ID"]


def group(backend: str, seconds: float = 20.0) -> dist.ProcessGroup:
    """Give a group of all ranks over a backend, whose operations have a deadline; collective."""
    return dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(backend), timeout=timedelta(seconds=seconds))


def notes(over: dist.ProcessGroup) -> list[str]:
    """Give what a group's backend noted of falling back, the same on all ranks; collective."""
    mine = list(over._runner.backend.fell_back)
    assert all(found == mine for found in COMM.allgather(mine))
    return mine
