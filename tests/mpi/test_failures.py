"""Faults put in on purpose: what the ranks see, and that the group is dead and others live on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, world

import hpccomm
from hpccomm.errors import BackendError, DeadlineError

pytestmark = pytest.mark.mpi(min_size=2)

RANK = COMM.rank


@pytest.fixture(scope="module", autouse=True)
def standing() -> Iterator[hpccomm.World]:
    with world("A" * COMM.size, "mpi4py") as made:
        yield made


def group(backend: str, seconds: float = 2.0) -> dist.ProcessGroup:
    return dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(backend), timeout=timedelta(seconds=seconds))


def all_reduce(over: dist.ProcessGroup) -> float:
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=over)
    return float(tensor[0])


@pytest.mark.parametrize("inner", ["mpi4py", "gloo"])
@pytest.mark.parametrize("kind", ["raise", "hang"])
def test_a_rank_that_fails_kills_the_group_on_all_ranks_and_no_other(kind: str, inner: str) -> None:
    struck = group(f"faulty({inner}, {kind}, rank=1, call=2)")
    assert all_reduce(struck) == COMM.size
    with pytest.raises(BackendError if kind == "raise" else DeadlineError) as failed:
        all_reduce(struck)
    assert "faulty(" in str(failed.value)
    with pytest.raises(BackendError, match="dead"):
        all_reduce(struck)
    COMM.Barrier()
    assert all_reduce(group(inner, 30)) == COMM.size
    dist.barrier()


def test_a_deadline_names_operation_time_and_rank() -> None:
    struck = group("faulty(mpi4py, hang, rank=0)", 0.5)
    with pytest.raises(DeadlineError) as failed:
        dist.all_reduce(torch.ones(1024), group=struck)
    text = str(failed.value)
    assert "all_reduce of 1024 float32, operation 1" in text
    assert "waited 0.5 s" in text or "passed its deadline" in text


def test_a_wrong_result_is_wrong_on_one_rank_once() -> None:
    struck = group("faulty(mpi4py, wrong, rank=1, call=2)", 30)
    seen = [all_reduce(struck) == COMM.size for _ in range(3)]
    assert seen == ([True, False, True] if RANK == 1 else [True] * 3)


def test_a_late_rank_is_waited_for() -> None:
    assert all_reduce(group("faulty(mpi4py, late, rank=0, seconds=0.3)", 30)) == COMM.size


def test_a_group_that_one_rank_cannot_build_is_refused_on_all() -> None:
    backend = "gloo(threads=0)" if RANK == 1 else "gloo"
    with pytest.raises(Exception, match="threads=0"):
        group(backend, 5)
