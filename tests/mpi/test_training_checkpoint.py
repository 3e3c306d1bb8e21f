"""A checkpoint gives every rank back what it had, or says on all ranks what does not fit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from training import GRADIENT_CASES, SIZE, assert_same, network
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import OptionError, TrainingError
from hpccomm.training import Checkpoint

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

RANK = COMM.rank


@pytest.fixture(scope="module", params=GRADIENT_CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(COMM.bcast(tmp_path)) / "checkpoint.pt"


def numbers() -> tuple[list[float], float, float]:
    return torch.rand(3).tolist(), np.random.rand(), random.random()


def seed(number: int) -> None:
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def test_states_and_each_ranks_random_numbers_come_back(case: hpccomm.World, path: Path) -> None:
    assert Checkpoint(path, model=network()).load() is None
    seed(RANK)
    saved = network().float()
    seed(RANK)
    Checkpoint(path, model=saved).save({"step": 3})
    expected = numbers()
    assert len(set(map(str, COMM.allgather(expected)))) == SIZE
    fresh = network().float()
    torch.nn.init.zeros_(fresh[0].weight)
    assert Checkpoint(path, model=fresh).load() == {"step": 3}
    assert numbers() == expected
    assert_same(fresh.parameters(), saved.parameters(), 0)
    assert [*path.parent.iterdir()] == [path]


def test_what_was_captured_does_not_change_with_the_parts(case: hpccomm.World, path: Path) -> None:
    model = network()
    checkpoint = Checkpoint(path, model=model)
    captured, drawn = checkpoint.capture(), numbers()
    before = [one.detach().clone() for one in model.parameters()]
    for one in model.parameters():
        torch.nn.init.zeros_(one)
    checkpoint.restore(captured)
    assert_same(model.parameters(), before, 0)
    assert numbers() == drawn


def test_what_does_not_fit_is_an_error_on_all_ranks(case: hpccomm.World, path: Path) -> None:
    model = network()
    with pytest.raises(TrainingError, match=r"No such file|does not exist"):
        Checkpoint(path / "no" / "folder", model=model).save({})
    Checkpoint(path, model=model).save({})
    with pytest.raises(OptionError, match="with model, progress"):
        Checkpoint(path, model=model, other=model).load()
    with pytest.raises(TrainingError, match=r"not all ranks see the same file; ranks \[0\] see one"):
        Checkpoint(path.with_name("other.pt") if RANK else path, model=model).load()


def test_another_number_of_ranks_is_refused_or_asked_for(case: hpccomm.World, path: Path) -> None:
    model, first = network(), dist.new_group([0], backend="hpccomm")
    seed(RANK)
    if RANK == 0:
        Checkpoint(path, model=model, group=first).save({"step": 3})
    dist.barrier()
    with pytest.raises(OptionError, match="it is of 1 ranks"):
        Checkpoint(path, model=model).load()
    expected = numbers()
    seed(RANK + SIZE * (RANK == 0))
    assert Checkpoint(path, model=model).load(resize=True) == {"step": 3}
    assert numbers() == expected  # rank 0's from the file, the others' their own
    with pytest.raises(OptionError, match="with model, progress"):
        Checkpoint(path, model=model, other=model).load(resize=True)
