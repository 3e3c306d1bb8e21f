"""Ranks that this program spawns itself and that meet in a file; no launcher, no variables of torchrun."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
import torch.multiprocessing

from hpccomm.bootstrap.plugin import register

SIZE = 2


def run(rank: int, file: str) -> None:
    """Be one rank: start, reduce, end."""
    register()
    dist.init_process_group("hpccomm", init_method=f"file://{file}", rank=rank, world_size=SIZE)
    tensor = torch.full((3,), float(rank + 1))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0] * 3
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank} is done\n", end="", flush=True)


if __name__ == "__main__":
    torch.multiprocessing.spawn(run, args=(sys.argv[1],), nprocs=SIZE)
