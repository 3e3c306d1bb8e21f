"""`auto` by a tuning table: the backends that it names, by size, and none of another set-up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, world

import hpccomm
from hpccomm.backends.tuned import TunedBackend, setup_of
from hpccomm.errors import BackendError, OptionError
from hpccomm.tuning import Tuning

pytestmark = pytest.mark.mpi

CHOICES = {
    "all_reduce": [(0, "gloo"), (400, "shm(crossover=1)"), (4000, "ring(mpi4py)")],
    "broadcast": [(0, "mpi4py"), (4000, "gloo")],
    "all_to_all": [(0, "gloo"), (400, "mpi4py")],
}


@pytest.fixture
def standing() -> Iterator[hpccomm.World]:
    with world("A" * COMM.size, "mpi4py") as made:
        yield made


def auto(folder: Path, patch: pytest.MonkeyPatch, made: hpccomm.World, **changed: object) -> dist.ProcessGroup:
    """Make a group over `auto`; only rank 0's file counts, and only rank 0 has one."""
    setup = setup_of(made.exchange, made.topology, made.device)
    file = folder / "tuning.json"
    if COMM.rank == 0:
        file.write_text(Tuning(setup, CHOICES).text().replace(*changed.get("replace", ("", ""))))  # type: ignore[misc]
    patch.setenv("HPCCOMM_TUNING", str(file))
    return dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("auto"))


def test_results_are_right_at_every_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: hpccomm.World
) -> None:
    group = auto(tmp_path, monkeypatch, standing)
    backend = group._runner.backend
    assert isinstance(backend, TunedBackend)
    assert list(backend._built) == ["gloo", "shm(crossover=1)", "ring(mpi4py)", "mpi4py"]
    assert "gloo from 0 B, shm(crossover=1) from 400 B" in backend.notes[0]
    for count in (1, 99, 100, 999, 1000, 5000):
        for dtype in (torch.float32, torch.float16, torch.int64):
            tensor = torch.full((count,), COMM.rank + 1, dtype=dtype)
            dist.all_reduce(tensor, group=group)
            assert (tensor == COMM.size * (COMM.size + 1) // 2).all()
            dist.broadcast(tensor.fill_(COMM.rank), COMM.size - 1, group=group)
            assert (tensor == COMM.size - 1).all()
        mixed = torch.empty(count * COMM.size)
        dist.all_to_all_single(mixed, torch.full((count * COMM.size,), float(COMM.rank)), group=group)
        assert mixed.view(COMM.size, count).eq(torch.arange(COMM.size)[:, None]).all()


def test_a_table_of_another_set_up_is_left_aside_and_a_damaged_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: hpccomm.World
) -> None:
    group = auto(tmp_path, monkeypatch, standing, replace=(torch.__version__, "0.1"))
    assert not isinstance(group._runner.backend, TunedBackend)
    assert f"torch 0.1 instead of {torch.__version__}" in group._runner.backend.notes[-1]
    with pytest.raises(OptionError, match=r"tuning\.json"):
        auto(tmp_path, monkeypatch, standing, replace=('"choices"', '"chosen"'))


def test_a_part_that_one_rank_cannot_build_is_refused_on_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, standing: hpccomm.World
) -> None:
    broken = f"faulty(mpi4py, raise(at=construction), rank={COMM.size - 1})"
    with pytest.raises(BackendError, match="on purpose"):
        auto(tmp_path, monkeypatch, standing, replace=('"gloo"', json.dumps(broken)))


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch, standing: hpccomm.World) -> None:
    monkeypatch.setenv("HPCCOMM_TUNING", "")
    group = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("auto"))
    assert str(group._runner.expression) == "mpi4py"
