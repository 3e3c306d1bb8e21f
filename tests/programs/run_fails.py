"""A program for hpccomm.run whose last rank leaves with a bare SystemExit; it never imports hpccomm."""

from __future__ import annotations

import os

import torch.distributed as dist

is_last = int(os.environ["RANK"]) == int(os.environ["WORLD_SIZE"]) - 1
dist.init_process_group("hpccomm")
if is_last:
    raise SystemExit(3)
dist.barrier()
print("went on", flush=True)
