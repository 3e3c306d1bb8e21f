"""A training loop that Slurm's warning ends at a step, and that goes on from there in the job's next start.

Arguments: a folder for the checkpoint, and the number of steps. Each step adds its number on all ranks.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from hpccomm.training.preemption import Preemption

preemption = Preemption()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

import hpccomm  # noqa: E402


def load(file: Path) -> tuple[int, float]:
    """Give the next step and the sum so far."""
    if not file.exists():
        return 0, 0.0
    step, total = json.loads(file.read_text())
    return step, total


def save(file: Path, step: int, total: float) -> None:
    """Write a checkpoint, whole or not at all."""
    beside = file.with_suffix(".new")
    beside.write_text(json.dumps([step, total]))
    beside.replace(file)


def main(folder: Path, steps: int) -> None:
    """Train."""
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    with hpccomm.init("mpi4py", timeout_s=60) as world:
        rank = world.topology.rank
        checkpoint = folder / f"rank{rank}.json"
        first, total = load(checkpoint)
        for step in range(first, steps):
            gradient = torch.tensor([float(step)])
            dist.all_reduce(gradient, dist.ReduceOp.AVG)
            total += gradient.item()
            if restarts == "0":
                time.sleep(0.2)
            print(f"start {restarts} rank {rank} step {step}", flush=True)
            if preemption.agreed():
                save(checkpoint, step + 1, total)
                print(f"start {restarts} rank {rank} saved {step + 1}", flush=True)
                preemption.requeue()
                return
        print(f"start {restarts} rank {rank} done {total}", flush=True)


main(Path(sys.argv[1]), int(sys.argv[2]))
