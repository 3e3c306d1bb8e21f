"""Ranks that hold different parameters or gradients get one error that names the first; equal ones pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from training import GRADIENT_CASES, SIZE, loss, network
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import TrainingError
from hpccomm.training import broadcast_model, check_gradients, check_parameters

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

RANK = COMM.rank


@pytest.fixture(scope="module", params=GRADIENT_CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def same_error(check: Callable[[], None]) -> str:
    """Give the error that a check raises on all ranks alike."""
    with pytest.raises(TrainingError) as caught:
        check()
    assert caught.value.everywhere
    assert len(set(COMM.allgather(str(caught.value)))) == 1
    return caught.value.found


def test_equal_models_pass_the_check(case: hpccomm.World) -> None:
    model = torch.nn.Sequential(network(), torch.nn.BatchNorm1d(8))
    model[1].running_mean.fill_(float("nan"))
    check_parameters(model)
    check_gradients(model)
    check_parameters(model, group=dist.new_group(backend="gloo"))
    check_parameters(torch.nn.ReLU())
    check_gradients(torch.nn.ReLU())


def test_a_parameter_that_differs_in_one_bit_is_named(case: hpccomm.World) -> None:
    model = network()
    others = "0" if SIZE == 2 else f"0-{SIZE - 2}"
    ranks = f"{'rank' if SIZE == 2 else 'ranks'} {others}, rank {SIZE - 1}"
    if RANK == SIZE - 1:
        model[2].bias.data.view(torch.int64)[3] ^= 1
    assert same_error(lambda: check_parameters(model)) == f"2.bias differs first: {ranks}"
    if RANK == SIZE - 1:
        model[4].weight.data.copy_(model[4].weight.data.flip(0).clone())
    assert same_error(lambda: check_parameters(model)) == f"2.bias differs first: {ranks}; 2 of 8 tensors differ"


def test_gradients_that_differ_or_are_missing_are_named(case: hpccomm.World) -> None:
    model = network()
    loss(model, RANK, 0).backward()
    assert same_error(lambda: check_gradients(model)).startswith("the gradient of 0.weight differs first: rank 0, ")
    model.zero_grad()
    if RANK:
        loss(model, 0, 0).backward()
    assert "rank 0 without any" in same_error(lambda: check_gradients(model))


def test_models_of_other_shapes_are_told_apart_first(case: hpccomm.World) -> None:
    model = torch.nn.Linear(3, 3 + (RANK == 0))
    assert "shapes" in same_error(lambda: check_parameters(model))


def test_all_ranks_begin_with_the_model_of_one(case: hpccomm.World) -> None:
    model = torch.nn.BatchNorm1d(3)
    for tensor in model.state_dict().values():
        tensor.fill_(RANK)
    broadcast_model(model, root=SIZE - 1)
    assert all((tensor == SIZE - 1).all() for tensor in model.state_dict().values())
