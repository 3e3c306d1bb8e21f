"""A checkpoint gives every rank back what it had, or says on all ranks what does not fit."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from training import GRADIENT_CASES, SIZE, assert_same, loss, network, sgd, train
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import OptionError, TrainingError
from hpccomm.training import Checkpoint
from hpccomm.whole import whole

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


def test_what_was_captured_can_be_taken_again(case: hpccomm.World, path: Path) -> None:
    model = network()
    optimizer = sgd(model.parameters())
    checkpoint = Checkpoint(path, model=model, optimizer=optimizer)
    train(model, lambda step: loss(model, RANK, step), optimizer, steps=[0])
    captured = checkpoint.capture()
    ends = []
    for _ in range(2):
        checkpoint.restore(captured)
        ends.append(train(model, lambda step: loss(model, RANK, step), optimizer, steps=[1, 2]))
    assert_same(*ends, 0)


def test_progress_and_parts_may_hold_what_they_like(case: hpccomm.World, path: Path) -> None:
    part = network()
    before = [one.detach().clone() for one in part.parameters()]
    checkpoint = Checkpoint(path, progress=part)
    checkpoint.save({"loss": float("nan")})
    torch.nn.init.zeros_(part[0].weight)
    assert repr(checkpoint.load()) == "{'loss': nan}"
    assert_same(part.parameters(), before, 0)


def test_a_file_is_on_the_disk_before_it_is_in_its_place(
    case: hpccomm.World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    monkeypatch.setattr("os.fsync", lambda number: kept.append((os.fstat(number).st_ino, path.exists())))
    Checkpoint(path, model=network()).save({})
    assert kept == ([] if RANK else [(path.stat().st_ino, False)])


@pytest.mark.parametrize("next_use", [lambda checkpoint: checkpoint.save({}), Checkpoint.load], ids=["save", "load"])
def test_what_a_killed_save_left_is_deleted(
    case: hpccomm.World, path: Path, next_use: Callable[[Checkpoint], object]
) -> None:
    checkpoint = Checkpoint(path, model=network())
    checkpoint.save({})
    if RANK == 0:
        with whole(path) as beside:
            beside.touch()
            number, started, space = beside.name.removeprefix(".checkpoint.pt.").split("-")
            beside.with_name(f".checkpoint.pt.{number}-{int(started) - 1}-{space}").touch()  # of one that is gone
            shutil.copy(path, beside)
    COMM.Barrier()
    assert len([*path.parent.iterdir()]) == 2
    COMM.Barrier()
    next_use(checkpoint)
    COMM.Barrier()
    assert [*path.parent.iterdir()] == [path]


def same_error(call: Callable[[], object]) -> TrainingError:
    """Give the error that a call raises on all ranks alike."""
    with pytest.raises(TrainingError) as caught:
        call()
    assert caught.value.everywhere
    assert len(set(COMM.allgather(caught.value.found))) == 1
    return caught.value


@pytest.mark.parametrize(("value", "words"), [(np.float64(0.5), "numpy"), (iter, "iter"), (lambda: 0, "lambda")])
def test_what_could_not_be_loaded_does_not_take_the_place_of_what_can(
    case: hpccomm.World, path: Path, value: object, words: str
) -> None:
    checkpoint = Checkpoint(path, model=network())
    checkpoint.save({"step": 1})
    error = same_error(lambda: checkpoint.save({"step": value}))
    assert words in error.found
    assert "Python's numbers" in error.remedy
    assert checkpoint.load() == {"step": 1}
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("damage", [lambda whole: whole[:-100], lambda whole: b"", lambda whole: whole[100:]])
def test_a_file_that_is_not_whole_is_one_error(
    case: hpccomm.World, path: Path, damage: Callable[[bytes], bytes]
) -> None:
    checkpoint = Checkpoint(path, model=network())
    checkpoint.save({})
    if RANK == 0:
        path.write_bytes(damage(path.read_bytes()))
    COMM.Barrier()
    assert f"ranks {[*range(SIZE)]} cannot read it" in same_error(checkpoint.load).found
    if RANK == 0:
        torch.save(network().state_dict(), path)
    COMM.Barrier()
    assert "not written by Checkpoint" in same_error(checkpoint.load).found


def test_files_of_other_states_are_not_the_same_file(case: hpccomm.World, path: Path) -> None:
    """On each host another one lies, of as many steps."""
    model, own = network(), path.with_name(f"{RANK}.pt")
    group = [dist.new_group([rank], backend="hpccomm") for rank in range(SIZE)][RANK]
    shared = path if RANK == 0 else own
    seed(0)
    torch.nn.init.constant_(model[0].bias, RANK)
    Checkpoint(shared, model=model, group=group).save({"step": 3})
    error = same_error(lambda: Checkpoint(shared, model=model).load(resize=True))
    assert "not all ranks see the same file" in error.found


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


OTHER_SETTINGS = [  # those of the file, those given, and how the error says them, given and found
    ({"--lr": 0.1, "--seed": 1}, {"--lr": 0.2, "--seed": 1}, ("--lr 0.2", "--lr 0.1")),
    ({"--lr": 0.1, "--seed": 1}, {"--lr": 0.2, "--seed": 0}, ("--lr 0.2, --seed 0", "--lr 0.1, --seed 1")),
    ({"--seed": 0}, {}, ("no --seed", "--seed 0")),
]


@pytest.mark.parametrize("settings", OTHER_SETTINGS, ids=str)
@pytest.mark.parametrize("differing", ["all", "last"])
def test_other_settings_of_any_rank_are_one_error(
    case: hpccomm.World,
    path: Path,
    settings: tuple[dict[str, float], dict[str, float], tuple[str, str]],
    differing: str,
) -> None:
    model, (begun_with, own, (given, found)) = network(), settings
    before = [one.detach().clone() for one in model.parameters()]
    Checkpoint(path, settings=begun_with, model=model).save({})
    torch.nn.init.zeros_(model[0].weight)
    differs = differing == "all" or RANK == SIZE - 1
    with pytest.raises(OptionError) as caught:
        Checkpoint(path, settings=own if differs else begun_with, model=model).load(resize=True)
    assert caught.value.asked == f"go on from the checkpoint {path} with {given}"
    assert caught.value.found == f"it is of a run with {found}"
    assert caught.value.everywhere
    assert not model[0].weight.any()
    assert Checkpoint(path, settings=dict(reversed(begun_with.items())), model=model).load() == {}
    assert_same(model.parameters(), before, 0)


def test_a_file_that_does_not_say_with_which_settings_is_taken(case: hpccomm.World, path: Path) -> None:
    Checkpoint(path, model=network()).save({"step": 3})
    if RANK == 0:
        found = torch.load(path)
        del found["settings of the run"]
        torch.save(found, path)
    COMM.Barrier()
    assert Checkpoint(path, model=network()).load() == {"step": 3}
    assert Checkpoint(path, settings={"--seed": 0}, model=network()).load() == {"step": 3}
    if SIZE > 1:
        with pytest.raises(OptionError, match="of a run with no --seed"):
            Checkpoint(path, settings={"--seed": 0} if RANK else {}, model=network()).load()
