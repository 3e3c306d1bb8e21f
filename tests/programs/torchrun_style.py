"""A script as torchrun's users write it: it reads the variables, makes a Gloo group, and leaves it standing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

if __name__ == "__main__":
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK")
    variables = {name: int(os.environ[name]) for name in names}
    dist.init_process_group("gloo")
    tensor = torch.full((3,), float(dist.get_rank() + 1))
    dist.all_reduce(tensor)
    beside = sys.path[0] == str(Path(__file__).resolve().parent)
    told = {"variables": variables, "arguments": sys.argv[1:], "sum": tensor[0].item(), "beside": beside}
    print(json.dumps(told) + "\n", end="", flush=True)
    if "leave" in sys.argv:
        sys.exit(0)
