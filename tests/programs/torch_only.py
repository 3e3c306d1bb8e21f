"""A torchrun-style program of four ranks: torch's own calls, with `hpccomm` as the backend's name.

With the argument `register` it registers the name itself; otherwise torch finds it by the package's entry point, and
this program never imports hpccomm.
"""

from __future__ import annotations

import os
import select
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

TORCH = tuple(map(int, torch.__version__.split(".")[:2]))


def total(group: dist.ProcessGroup | None = None) -> float:
    """Sum the ranks of a group."""
    tensor = torch.full((3,), float(dist.get_rank()))
    dist.all_reduce(tensor, group=group)
    return float(tensor[0])


def check_groups(rank: int) -> None:
    """Make a group of some ranks and a mesh of two by two, reduce over each, and gather objects."""
    ends = dist.new_group([0, 3], backend="hpccomm")
    if rank in (0, 3):
        assert total(ends) == 3
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("node", "local"))
    assert total(mesh["local"].get_group()) == 2 * rank + (1 if rank % 2 == 0 else -1)
    assert total(mesh["node"].get_group()) == 2 * (rank % 2) + 2
    objects: list[object] = [None] * 4
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": other} for other in range(4)]


def check_default(backend: str) -> list[int]:
    """Make the default group, use it, and destroy it; give descriptors that are ready when the other ranks end."""
    dist.init_process_group(backend)
    assert total() == 6
    check_groups(dist.get_rank())
    processes = [0] * 4
    dist.all_gather_object(processes, os.getpid())
    ends = [os.pidfd_open(process) for process in processes if process != os.getpid()]
    dist.barrier()
    dist.destroy_process_group()
    return ends


def check_beside_gloo() -> None:
    """Make groups over hpccomm where the default group is Gloo's: first one of all ranks, then of some."""
    dist.init_process_group("gloo")
    assert total() == 6
    assert total(dist.new_group(backend="hpccomm")) == 6
    pair = dist.new_group([1, 2], backend="hpccomm")
    if dist.get_rank() in (1, 2):
        assert total(pair) == 3
    dist.barrier()
    dist.destroy_process_group()


def main() -> None:
    """Run all checks; the last line shows that they were reached."""
    assert "hpccomm" not in sys.modules or "TORCHELASTIC_RUN_ID" not in os.environ or "register" in sys.argv
    check_default("hpccomm")
    check_beside_gloo()
    if TORCH >= (2, 14):
        check_default("cpu:hpccomm,cuda:gloo")
    ends = check_default("hpccomm")
    print(f"rank {os.environ['RANK']} of {os.environ['WORLD_SIZE']} is done\n", end="", flush=True)
    if "TORCHELASTIC_RUN_ID" in os.environ and os.environ["RANK"] == "0":  # works on when the others have ended well
        for end in ends:
            select.select([end], [], [])
        time.sleep(0.5)


if "register" in sys.argv:
    from hpccomm.bootstrap.plugin import register

    register()
main()
