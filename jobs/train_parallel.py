"""Train a small transformer that is cut over ranks, on scikit-learn's digits read row by row; a template.

    mpirun -np 4 python jobs/train_parallel.py --tp 2 --pp 2

`--tp` ranks share every layer (tensor parallel), and `--pp` groups of them have some layers each (pipeline); without
both it is one process. All learn the same, but for rounding. It saves no checkpoint. Needs the extra `train`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from rich.progress import Progress
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, gelu, scaled_dot_product_attention
from torch.utils.data import TensorDataset
from train import digits, finish, progress_bar, seed

import hpccomm
from hpccomm.errors import OptionError

WIDTH, HEADS, BLOCKS = 64, 4, 2
BATCH, MICROBATCHES = 60, 2  # the rows of the test are a multiple of both
CUT = {
    **{f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")},
    "attention.output": RowwiseParallel(),
    "up": ColwiseParallel(),
    "down": RowwiseParallel(),
}


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(";")[0])
    parser.add_argument("--tp", type=int, default=1, metavar="RANKS", help="that share each layer")
    parser.add_argument("--pp", type=int, default=1, metavar="STAGES", help="of the pipeline")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--backend", help="backend expression; HPCCOMM_BACKEND or auto without it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="file for the results, complete at the end")
    return parser.parse_args(argv)


class Embedding(nn.Module):
    """From images of shape (rows, 1, 8, 8) to sequences of their 8 lines, (rows, 8, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.content = nn.Linear(8, WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(8, WIDTH))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Embed."""
        return self.content(images.squeeze(1)) + self.place


class Attention(nn.Module):
    """Self-attention over all places; of its heads, those that this rank's part of the layers computes."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Attend."""
        parts = (layer(sequences) for layer in (self.query, self.key, self.value))
        heads = (part.unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in parts)
        return self.output(scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and two layers, each added to what comes in."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Add both."""
        sequences = sequences + self.attention(self.before(sequences))
        return sequences + self.down(gelu(self.up(self.between(sequences))))


class Head(nn.Module):
    """From sequences to the scores of the ten digits."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.scores = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, sequences: torch.Tensor) -> torch.Tensor:
        """Judge."""
        return self.scores(self.norm(sequences.mean(1)))


def network() -> nn.Sequential:
    """Give the whole network, the same on all ranks whose random numbers are."""
    return nn.Sequential(Embedding(), *(Block() for _ in range(BLOCKS)), Head())


class Training:
    """One rank's part of the network, and what trains it; its construction is collective."""

    def __init__(self, world: hpccomm.World, options: argparse.Namespace) -> None:
        require_places(world.topology.world_size, options)
        self.options = options
        self.data, self.test = digits()
        mesh = init_device_mesh("cpu", (options.pp, options.tp), mesh_dim_names=("pp", "tp"))
        place = mesh["pp"].get_local_rank()
        self.is_first, self.is_last = place == 0, place == options.pp - 1
        seed(options.seed)
        layers = network()
        self.part = layers[len(layers) * place // options.pp : len(layers) * (place + 1) // options.pp]
        for layer in self.part:
            if isinstance(layer, Block) and options.tp > 1:
                parallelize_module(layer, mesh["tp"], CUT)
        stage = PipelineStage(self.part, place, options.pp, world.device, group=mesh["pp"].get_group())
        self.schedule = Schedule1F1B(stage, n_microbatches=MICROBATCHES, loss_fn=cross_entropy)
        self.optimizer = torch.optim.AdamW(self.part.parameters(), lr=options.lr)

    def batches(self, epoch: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        """Give an epoch's batches, the same on all ranks; rows that make no whole batch are left out."""
        generator = torch.Generator().manual_seed(self.options.seed + epoch)
        order = torch.randperm(len(self.data), generator=generator)
        return (self.data[rows] for rows in order.split(BATCH) if len(rows) == BATCH)

    def step(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Learn from a batch; collective."""
        self.schedule.step(*[images] if self.is_first else [], target=labels if self.is_last else None)
        self.optimizer.step()
        self.optimizer.zero_grad()

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Give accuracy and loss on the test's rows; collective."""
        totals = torch.zeros(2, dtype=torch.float64)
        for images, labels in batches_of(self.test):
            output = self.schedule.eval(*[images] if self.is_first else [], target=labels if self.is_last else None)
            if self.is_last:
                right = (output.argmax(1) == labels).sum()
                totals += torch.stack([right, cross_entropy(output.double(), labels, reduction="sum")])
        dist.broadcast(totals, dist.get_world_size() - 1)
        accuracy, loss = (totals / len(self.test)).tolist()
        return {"accuracy": accuracy, "loss": loss}


def batches_of(data: TensorDataset) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Give all rows in batches."""
    return zip(*(tensor.split(BATCH) for tensor in data.tensors), strict=True)  # type: ignore[return-value]


def require_places(size: int, options: argparse.Namespace) -> None:
    """Refuse what the ranks or the layers do not fit.

    Raises:
        OptionError: The same on all ranks.
    """
    if options.tp * options.pp != size or HEADS % options.tp or not 0 < options.pp <= BLOCKS:
        raise OptionError(
            f"train with --tp {options.tp} --pp {options.pp}",
            found=f"{size} ranks, {HEADS} heads and {BLOCKS} blocks",
            remedy="start tp x pp ranks; tp divides the heads, and each stage has a block",
            everywhere=True,
        )


def train(training: Training, bar: Progress) -> list[dict[str, Any]]:
    """Train, and give the results of the epochs; collective."""
    results = []
    for epoch in bar.track(range(training.options.epochs)):
        started, rows = time.monotonic(), 0
        for images, labels in training.batches(epoch):
            training.step(images, labels)
            rows += len(labels)
        result = {"epoch": epoch, "rows_per_s": rows / (time.monotonic() - started), **training.evaluate()}
        results.append(result)
        line = "epoch {epoch}: test accuracy {accuracy:.1%}, loss {loss:.4f}, {rows_per_s:.0f} rows/s"
        bar.console.print(line.format_map(result))
    return results


def main(argv: Sequence[str]) -> None:
    """Train as the arguments say."""
    options = parse(argv)
    with hpccomm.init(options.backend) as world:
        training = Training(world, options)
        with progress_bar(world) as bar:
            results = train(training, bar)
        finish(world, options, results)


if __name__ == "__main__":
    main(sys.argv[1:])
