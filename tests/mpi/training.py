"""Training that can be done by ranks together and by one process alone, for tests that compare the two.

A loss is that of one rank at one step; alone, a process takes the mean over all ranks' losses.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from worlds import COMM, by_this_mpi

STEPS, ROWS, WIDTH = 3, 2, 8
SIZE = COMM.size

_PLACEMENTS = {2: ["AB"], 4: ["AABB", "AAAB"]}
_HIERARCHIES = [(nodes, "hierarchical(mpi4py, gloo)") for nodes in _PLACEMENTS.get(SIZE, [])]
_ON_ONE_NODE = [("A" * SIZE, backend) for backend in by_this_mpi(["mpi4py", "gloo", "ring(mpi4py)"])]
CASES = [_ON_ONE_NODE[0], *_HIERARCHIES, *_ON_ONE_NODE[1:]] if _HIERARCHIES else []
"""Placement and backend of the worlds to train in; none where the number of ranks has nothing new to tell."""
FEW = pytest.mark.parametrize("case", CASES[:2], indirect=True, ids=" ".join)
"""For a program that takes long and calls nothing that the others do not call in all worlds."""

GRADIENT_CASES = {
    2: [("AA", "mpi4py")],
    3: [("AAB", "hierarchical(mpi4py, gloo)")],
    4: [("AAAB", "hierarchical(mpi4py, gloo)")],
}.get(SIZE, [])
"""Placement and backend of the worlds for what hpccomm adds to training; none of one rank."""

_numbers = itertools.count()

Loss = Callable[[torch.nn.Module, int, int], torch.Tensor]
"""The loss of a model on the rows of a rank at a step."""


def network(layers: int = 4) -> torch.nn.Sequential:
    """Give the same layers on every rank and at every call."""
    torch.manual_seed(0)
    parts = [part for _ in range(layers) for part in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())]
    return torch.nn.Sequential(*parts).double()


def rows(rank: int, step: int) -> torch.Tensor:
    """Give what a rank learns from at a step."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=generator)


def all_rows(step: int) -> torch.Tensor:
    """Give what all ranks learn from at a step, one after the other."""
    return torch.cat([rows(rank, step) for rank in range(SIZE)])


def error(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Give the mean square of what an output is off by."""
    return (output - target.sin()).square().mean()


def loss(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    """Give the loss of a model on a rank's rows."""
    return error(model(rows(rank, step)), rows(rank, step))


def sgd(parameters: Iterable[torch.Tensor]) -> torch.optim.Optimizer:
    """Give the optimiser of all these tests that need no other."""
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def train(
    model: torch.nn.Module,
    losses: Callable[[int], torch.Tensor],
    optimizer: torch.optim.Optimizer | None = None,
    *,
    steps: Iterable[int] = range(STEPS),
) -> list[torch.Tensor]:
    """Take some steps and give the model's parameters then, whole.

    Args:
        model: The model.
        losses: Gives the loss of a step.
        optimizer: What steps; None for a new `sgd`.
        steps: The steps' numbers.
    """
    optimizer = optimizer or sgd(model.parameters())
    for step in steps:
        optimizer.zero_grad()
        losses(step).backward()
        optimizer.step()
    return whole(model.parameters())


def alone(
    model: torch.nn.Module, loss: Loss = loss, optimizer: torch.optim.Optimizer | None = None
) -> list[torch.Tensor]:
    """Train in this process alone, on the rows of all ranks."""
    return train(model, lambda step: sum(loss(model, rank, step) for rank in range(SIZE)) / SIZE, optimizer)


def mesh(*shape: int, group: dist.ProcessGroup | None = None) -> DeviceMesh:
    """Give a mesh of all ranks, in one row where no shape is given; None as the group stands for new ones.

    Its dimensions are named as no other mesh's: torch takes what it has found out about a mesh, its groups too, for
    that of every mesh that looks alike, though another world made it.
    """
    shape = shape or (SIZE,)
    names = tuple(f"{name}{next(_numbers)}" for name in ("outer", "inner")[-len(shape) :])
    if group is not None:
        return DeviceMesh.from_group(group, "cpu", mesh_dim_names=names)
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def whole(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Give copies of tensors, those that are spread over ranks put together."""
    return [(t.full_tensor() if isinstance(t, DTensor) else t).detach().clone() for t in tensors]


def assert_same(found: Iterable[torch.Tensor], expected: Iterable[torch.Tensor], tolerance: float = 1e-10) -> None:
    """See that tensors agree; with the tolerance 0 to the bit."""
    torch.testing.assert_close(list(found), list(expected), rtol=tolerance, atol=tolerance)
