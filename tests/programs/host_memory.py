"""Reduce and move tensors of sizes below and above what goes through a window in one round."""

from __future__ import annotations

import torch
import torch.distributed as dist

import hpccomm

COUNTS = (1, 4097, 65_537, 300_000)

with hpccomm.init("shm(crossover=1)", timeout_s=60) as world:
    rank, size = world.topology.rank, world.topology.world_size
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        for count in COUNTS:
            mine = torch.full((count,), rank + 1, dtype=dtype)
            reduced = mine.clone()
            dist.all_reduce(reduced)
            assert (reduced == total).all()
            at_root = mine.clone()
            dist.reduce(at_root, size - 1)
            assert (at_root == (total if rank == size - 1 else rank + 1)).all()
            gathered = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(gathered, mine)
            assert all((one == other + 1).all() for other, one in enumerate(gathered))
            share = torch.empty_like(mine)
            dist.reduce_scatter(share, [mine * (other + 1) for other in range(size)])
            assert (share == total * (rank + 1)).all()
            dist.scatter(share, gathered if rank == 0 else None)
            assert (share == rank + 1).all()
            mixed = torch.empty(size * count, dtype=dtype)
            dist.all_to_all_single(mixed, mine.repeat(size))
            assert (mixed.view(size, count) == torch.arange(1, size + 1)[:, None]).all()
            dist.broadcast(share, size - 1)
            assert (share == size).all()
