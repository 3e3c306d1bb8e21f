"""Batch normalisation over ranks is that of one process on all their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from training import GRADIENT_CASES, SIZE, assert_same
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.training import SyncBatchNorm

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

RANK, CHANNELS = COMM.rank, 3
ROWS = {2: [4, 1], 3: [2, 0, 3]}.get(SIZE, [])


@pytest.fixture(scope="module", params=GRADIENT_CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def rows(rank: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Give a rank's rows, whose mean is far above their deviation."""
    generator = torch.Generator().manual_seed(rank)
    return 1000 + torch.randn(ROWS[rank], CHANNELS, *shape, dtype=torch.float64, generator=generator)


def trained(layer: torch.nn.Module, batches: list[torch.Tensor]) -> list[torch.Tensor]:
    """Train a layer on some batches and give all that comes out: outputs, gradients of the inputs, gradients."""
    outputs, gradients = [], []
    for batch in batches:
        inputs = batch.clone().requires_grad_()
        output = layer(inputs)
        (output.sin() * batch).sum().backward()
        outputs.append(output.detach())
        gradients.append(inputs.grad)
    return [*outputs, *gradients, *(one.grad for one in layer.parameters())]


@pytest.mark.parametrize("shape", [(), (2, 5)], ids=str)
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False, "track_running_stats": False}], ids=str)
def test_it_is_that_of_one_process(case: hpccomm.World, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    kind = torch.nn.BatchNorm2d if shape else torch.nn.BatchNorm1d
    alone, here = kind(CHANNELS, **options).double(), SyncBatchNorm(CHANNELS, **options).double()
    every = [torch.cat([scale * rows(rank, shape) for rank in range(SIZE)]) for scale in (1, 2)]
    expected = trained(alone, every)
    found = trained(here, [scale * rows(RANK, shape) for scale in (1, 2)])
    mine = slice(sum(ROWS[:RANK]), sum(ROWS[: RANK + 1]))
    assert_same(found[:4], [one[mine] for one in expected[:4]], 1e-8)
    totals = [sum(COMM.allgather(one)) for one in found[4:]]
    assert_same(totals, expected[4:], 1e-8)
    assert_same(here.buffers(), alone.buffers(), 1e-10)
    assert_same([here.eval()(every[0])], [alone.eval()(every[0])], 1e-8)


def test_rows_are_counted_whatever_the_channels_are_said_to_be(case: hpccomm.World) -> None:
    """As torch's does, where nothing is kept of each channel."""
    plain = {"affine": False, "track_running_stats": False}
    expected = torch.nn.BatchNorm1d(1, **plain)(torch.cat([rows(rank, ()) for rank in range(SIZE)]))
    found = SyncBatchNorm(1, **plain)(rows(RANK, ()))
    assert_same([found], [expected[sum(ROWS[:RANK]) :][: ROWS[RANK]]], 1e-8)


def test_halves_are_computed_in_float32(case: hpccomm.World) -> None:
    layer = SyncBatchNorm(CHANNELS)
    inputs = rows(RANK, (5,)).to(torch.bfloat16)
    wide = torch.cat([rows(rank, (5,)) for rank in range(SIZE)]).to(torch.bfloat16).float()
    expected = torch.nn.BatchNorm1d(CHANNELS)(wide)[sum(ROWS[:RANK]) :][: ROWS[RANK]]
    assert layer(inputs).dtype == torch.bfloat16
    assert_same([layer(inputs).float()], [expected], 1e-2)
