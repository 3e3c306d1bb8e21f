"""A job whose last rank stays away from an operation, until everybody is told to write its flight record."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist

import hpccomm


def main(folder: str) -> None:
    with hpccomm.init(timeout_s=60) as world:
        rank, size = world.topology.rank, world.topology.world_size
        assert world.write_flight_record(f"{folder}/asked") is not None
        tensor = torch.ones(1000)
        for _ in range(3):
            dist.all_reduce(tensor)
        print(f"pid {os.getpid()}\n", end="", flush=True)
        if rank == size - 1:
            time.sleep(300)
        dist.all_reduce(tensor)


main(sys.argv[1])
