"""Train a small network on scikit-learn's digits on all ranks of a job; a template: copy it, and change what you train.

    mpirun -np 2 python jobs/train.py --help            or: sbatch jobs/train.sbatch

With --checkpoint a run goes on where the last one ended, on as many ranks to the same bits: at Slurm's warning before
the end all ranks stop at the same step, save, and have the job requeued. Needs the extra `train`.
"""

from __future__ import annotations

from hpccomm.training.preemption import Preemption

preemption = Preemption()  # first of all: until then a warning ends the process

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import Progress
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import hpccomm
from hpccomm.bench.terminal import is_terminal
from hpccomm.training import (
    AgreedGradScaler,
    Checkpoint,
    GradientTimer,
    ResumableSampler,
    SyncBatchNorm,
    accumulate,
    adasum,
    check_parameters,
    compress,
    settle_buckets,
)
from hpccomm.whole import write_whole

HOOKS: dict[str, Callable[[hpccomm.World], Any]] = {
    "none": lambda world: allreduce_hook,
    "bfloat16": lambda world: compress(torch.bfloat16),
    "float16": lambda world: compress(torch.float16, divide="before"),
    "adasum": lambda world: adasum(world.intra_node, world.inter_node, average_inside=True),
}
TEST_ROWS = 360
KEPT = ("seed", "lr", "batch", "accumulate", "precision", "hook")
"""Options that a run which goes on must have as it was begun; it may go on for more epochs, or over another backend."""


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, metavar="ROWS", help="of a rank in one pass")
    parser.add_argument("--accumulate", type=int, default=1, metavar="PASSES", help="of one step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument(
        "--precision", choices=["float32", "bfloat16", "float16"], default="float32", help="of autocast"
    )
    parser.add_argument("--hook", choices=HOOKS, default="none", help="how DDP averages gradients")
    parser.add_argument("--backend", help="backend expression; HPCCOMM_BACKEND or auto without it")
    parser.add_argument("--timeout", type=float, default=120, metavar="S", help="deadline of an operation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", type=Path, help="file to go on from and to save to")
    parser.add_argument("--json", type=Path, help="file for the results, complete at the end")
    return parser.parse_args(argv)


def seed(number: int) -> None:
    """Begin all random numbers anew."""
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


def digits() -> tuple[TensorDataset, TensorDataset]:
    """Give images of shape (rows, 1, 8, 8), from 0 to 1, and their labels: for training, and for the test."""
    from sklearn.datasets import load_digits  # here, as it takes a second

    data = load_digits()
    images = torch.as_tensor(data.images / 16, dtype=torch.get_default_dtype()).unsqueeze(1)
    labels = torch.as_tensor(data.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return tuple(TensorDataset(images[rows], labels[rows]) for rows in (order[TEST_ROWS:], order[:TEST_ROWS]))


def network() -> nn.Module:
    """Give the network, without weights that any rank should rely on: those of rank 0 count."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False),
        SyncBatchNorm(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1, stride=2, bias=False),
        SyncBatchNorm(32),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(32 * 4 * 4, 10),
    )


class Training:
    """What a run consists of; its construction is collective."""

    def __init__(self, world: hpccomm.World, options: argparse.Namespace) -> None:
        self.options, self.rank, self.size = options, world.topology.rank, world.topology.world_size
        seed(options.seed + self.rank)  # each rank has its own dropout, and rank 0's weights
        self.data, self.test = digits()
        self.sampler = ResumableSampler(self.data, num_replicas=self.size, rank=self.rank, seed=options.seed)
        self.model = DistributedDataParallel(network())
        self.timer = GradientTimer()
        self.model.register_comm_hook(None, self.timer.around(HOOKS[options.hook](world)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=options.lr)
        self.scaler = AgreedGradScaler(enabled=options.precision == "float16")
        self.checkpoint = Checkpoint(
            options.checkpoint,
            settings={f"--{name}": getattr(options, name) for name in KEPT},
            model=self.model.module,
            optimizer=self.optimizer,
            scaler=self.scaler,
        )
        start = self.checkpoint.capture()
        settle_buckets(self.model, lambda: self.loss(*self.data[: options.batch]))
        self.checkpoint.restore(start)

    def loss(self, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Give the mean loss of some rows."""
        with self.autocast():
            return cross_entropy(self.model(images), labels)

    def autocast(self) -> torch.autocast:
        """Give the context for forward passes."""
        precision = self.options.precision
        return torch.autocast("cpu", dtype=getattr(torch, precision), enabled=precision != "float32")

    def steps(self, epoch: int, seen: int) -> Iterator[int]:
        """Train for the rest of an epoch; after each step give how many of its rows all ranks have seen."""
        self.sampler.set_position(epoch, seen)
        # Its own generator: a loader draws a number when it begins, and a run that goes on has drawn that before.
        generator = torch.Generator().manual_seed(self.options.seed + epoch)
        loader = DataLoader(self.data, self.options.batch, sampler=self.sampler, generator=generator)
        for batch, micro in accumulate(self.model, loader, passes=self.options.accumulate, rows=rows_of):
            with micro.context():
                self.scaler.scale(self.loss(*batch) * micro.weight).backward()
            seen += rows_of(batch) * self.size
            if micro.last:
                self.scaler.step(self.optimizer)
                self.scaler.update()
                self.optimizer.zero_grad()
                yield seen

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Give accuracy and loss on the test's rows, each rank having its share of them; collective."""
        images, labels = self.test[self.rank :: self.size]
        self.model.eval()
        with self.autocast():
            output = self.model.module(images).double()
        self.model.train()
        right = (output.argmax(1) == labels).sum()
        totals = torch.stack([right, cross_entropy(output, labels, reduction="sum")])
        dist.all_reduce(totals)
        accuracy, loss = (totals / len(self.test)).tolist()
        return {"accuracy": accuracy, "loss": loss}


def rows_of(batch: Sequence[torch.Tensor]) -> int:
    """Give the number of rows of a batch."""
    return len(batch[0])


def train(training: Training, bar: Progress) -> list[dict[str, Any]] | None:
    """Train to the end, and give the results of the epochs; None where a warning ended it before. Collective."""
    options, checkpoint = training.options, training.checkpoint
    saved = options.checkpoint and checkpoint.load(resize=True)
    position = saved or {"epoch": 0, "seen": 0, "results": [], "ranks": training.size}
    bar.console.print("begins at epoch {epoch}, after {seen} rows".format_map(position))
    if position["ranks"] != training.size:
        bar.console.print(f"goes on with {training.size} ranks where {position['ranks']} ended: not to the same bits")
    task = bar.add_task("training", total=options.epochs)
    for epoch in range(position["epoch"], options.epochs):
        pace = Pace(training)
        for seen in training.steps(epoch, position["seen"]):
            bar.update(task, completed=epoch + seen / training.sampler.total_size)
            if options.checkpoint and preemption.agreed():  # without one, a job that is requeued would not get on
                # First, as a requeue ends the launcher with what it has not written yet
                bar.console.print(f"warned: ends at epoch {epoch}, after {seen} rows")
                save(training, {**position, "epoch": epoch, "seen": seen})
                return None
        result = {"epoch": epoch, **pace.measured(), **training.evaluate()}
        position = {"epoch": epoch + 1, "seen": 0, "results": [*position["results"], result]}
        save(training, position)
        bar.console.print(describe(result))
    check_parameters(training.model)
    return position["results"]


def save(training: Training, position: dict[str, Any]) -> None:
    """Write a checkpoint, if one is asked for; collective."""
    if training.options.checkpoint:
        training.checkpoint.save({**position, "ranks": training.size})


class Pace:
    """Rows a second of all ranks, and the share of the time in which gradients were on their way, from here on."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._started, self._communicated = time.monotonic(), training.timer.seconds

    def measured(self) -> dict[str, float]:
        """Give both, on this rank, at the end of an epoch."""
        seconds = time.monotonic() - self._started
        communicated = self._training.timer.seconds - self._communicated
        rows = len(self._training.sampler) * self._training.size
        return {"rows_per_s": rows / seconds, "communication_share": communicated / seconds}


def describe(result: dict[str, Any]) -> str:
    """Give the line of an epoch."""
    return (
        f"epoch {result['epoch']}: test accuracy {result['accuracy']:.1%}, loss {result['loss']:.4f}, "
        f"{result['rows_per_s']:.0f} rows/s, communication {result['communication_share']:.0%}"
    )


def progress_bar(world: hpccomm.World) -> Progress:
    """Give a bar that shows where the user has a terminal; rank 0 alone prints on its console, the world first."""
    shows = is_terminal(2, has_launcher=world.topology.world_size > 1)
    width = None if shows else 160
    console = Console(
        stderr=shows, force_terminal=shows, width=width, quiet=world.topology.rank > 0, highlight=False, markup=False
    )
    console.print(world)
    return Progress(console=console, disable=not shows)


def finish(world: hpccomm.World, options: argparse.Namespace, results: Sequence[dict[str, Any]]) -> None:
    """Write the results in the form that ``python -m hpccomm.jobs verify`` takes for a complete run's."""
    environment = {"ranks": world.topology.world_size, "backend": world.backend, "options": vars(options)}
    content = {"environment": environment, "complete": True, "results": results}
    if options.json and world.topology.rank == 0:
        write_whole(options.json, json.dumps(content, indent=1, default=str) + "\n")


def main(argv: Sequence[str]) -> None:
    """Train as the arguments say."""
    options = parse(argv)
    with hpccomm.init(options.backend, timeout_s=options.timeout) as world:
        training = Training(world, options)
        with progress_bar(world) as bar:
            results = train(training, bar)
        if results is None:
            preemption.requeue()
        else:
            finish(world, options, results)


if __name__ == "__main__":
    main(sys.argv[1:])
