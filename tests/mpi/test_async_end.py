"""Worlds that are closed while operations are under way: collectives end well, what has no partner is given up."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, world

pytestmark = pytest.mark.mpi

RANK, SIZE = COMM.rank, COMM.size


@pytest.mark.parametrize("backend", ["mpi4py", "gloo", "ring(mpi4py)"])
def test_a_world_is_closed_with_operations_under_way(backend: str) -> None:
    for _ in range(3):
        with world("A" * SIZE, backend, timeout_s=20):
            tensors = [torch.ones(500_000) for _ in range(3)]
            for tensor in tensors:
                dist.all_reduce(tensor, async_op=True)
            if SIZE > 1:
                dist.irecv(torch.zeros(3), (RANK + 1) % SIZE)
        assert all(tensor.eq(SIZE).all() for tensor in tensors)
