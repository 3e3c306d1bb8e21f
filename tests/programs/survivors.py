"""Train while ranks die, and compare the losses with those of one process that trains on the rows of who is left.

survivors.py BACKEND STEP:RANK:MOMENT …: at that step, the rank (numbered as it was started) is killed at the
``start``, ``after`` its gradients are averaged, or inside the ``shrink`` that follows another one's death, there also
when others wait for it inside MPI to make ``channels``.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import hpccomm
from hpccomm.backends.context import Context
from hpccomm.bootstrap import shrinking
from hpccomm.training import survive

ME, SIZE = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
STEPS, ROWS, WIDTH = 8, 3, 8
ALONE_S = 1.0  # for which the others wait for it
DEATHS = [(int(step), int(rank), moment) for step, rank, moment in (text.split(":") for text in sys.argv[2:])]


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh(), torch.nn.Linear(WIDTH, WIDTH)]
    return torch.nn.Sequential(*layers).double()


def rows(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=generator)


def loss(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    return (model(rows(rank, step)) - rows(rank, step).sin()).square().mean()


def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def reference() -> list[float]:
    """Give the losses of a run without faults on those that are left at each step."""
    model = network()
    steps, losses = optimizer(model), []
    for step in range(STEPS):
        left = [rank for rank in range(SIZE) if not any(died <= step for died, of, _ in DEATHS if of == rank)]
        steps.zero_grad()
        mean = sum(loss(model, rank, step) for rank in left) / len(left)
        mean.backward()
        steps.step()
        losses.append(mean.item())
    return losses


def die(step: int) -> None:
    print(f"dies at step {step}, {time.monotonic()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def die_if_due(step: int, moment: str) -> None:
    if (step, ME, moment) in DEATHS:
        die(step)
    if moment == "start" and (step, ME, "shrink") in DEATHS:
        shrinking.watch_over = lambda *_: die(step)
    if moment == "start" and (step, ME, "channels") in DEATHS:
        Context._subcommunicator = lambda *_: (time.sleep(ALONE_S), die(step))


def train(world: hpccomm.World) -> list[float]:
    model = network()
    steps, losses, ddp = optimizer(model), [], DistributedDataParallel(model)

    def rebuild() -> None:
        nonlocal ddp
        ddp = DistributedDataParallel(model)

    def gradients() -> float:
        die_if_due(step, "start")
        steps.zero_grad()
        own = loss(ddp, ME, step)
        own.backward()
        mean = own.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        die_if_due(step, "after")
        return mean.item()

    for step in range(STEPS):
        losses.append(survive(world, gradients, rebuild=rebuild))
        steps.step()
        print(f"step {step} ended, {time.monotonic()}", flush=True)
    return losses


def main() -> None:
    """Train, and see that losses and groups are as they should be."""
    with hpccomm.init(sys.argv[1], timeout_s=60, on_lost_rank="shrink") as world:
        losses = train(world)
        left = sorted(set(range(SIZE)) - {rank for _, rank, _ in DEATHS})
        torch.testing.assert_close(losses, reference(), rtol=1e-10, atol=0)
        assert world.exchange.all_gather(ME) == left
        assert (world.topology.rank, world.topology.world_size) == (left.index(ME), len(left))
        assert (dist.get_rank(), dist.get_world_size()) == (left.index(ME), len(left))
        for group, ranks in (
            (world.intra_node, world.topology.intra_node),
            (world.inter_node, world.topology.inter_node),
        ):
            total = torch.tensor([2.0**ME])
            dist.all_reduce(total, group=group)
            assert total.item() == sum(2.0 ** left[rank] for rank in ranks)
        assert "note: the world shrank from " in str(world)
    print(f"rank {ME} is right", flush=True)


main()
