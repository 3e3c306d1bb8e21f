"""Small all-reduces over mpi4py that are prepared once and started often: right, in order, held to their deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI
from worlds import COMM, world

import hpccomm
from hpccomm.backends.prepared import KEPT, prepare
from hpccomm.backends.process_group import HpccommProcessGroup
from hpccomm.errors import DeadlineError

pytestmark = pytest.mark.mpi

RANK, SIZE = COMM.rank, COMM.size
EVERYONE = SIZE * (SIZE + 1) // 2  # the sum of all ranks' rank + 1


@pytest.fixture(scope="module", autouse=True)
def standing() -> Iterator[hpccomm.World]:
    with world("A" * SIZE, "mpi4py") as made:
        yield made


def group(seconds: float = 30.0) -> dist.ProcessGroup:
    return dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("mpi4py"), timeout=timedelta(seconds=seconds))


def prepared(over: dist.ProcessGroup) -> int:
    assert isinstance(over, HpccommProcessGroup)
    return len(over._runner.backend.prepared)


def summed(over: dist.ProcessGroup, count: int, dtype: torch.dtype = torch.float32) -> None:
    tensor = torch.arange(count).to(dtype) * (RANK + 1)
    dist.all_reduce(tensor, group=over)
    assert torch.equal(tensor, torch.arange(count).to(dtype) * EVERYONE)


def test_each_dtype_operator_and_count_is_prepared_once() -> None:
    over = group()
    for _ in range(5):
        for dtype in (torch.float32, torch.float64, torch.int32):
            for count in (1, 7, 512):
                summed(over, count, dtype)
        largest = torch.full((7,), RANK)
        dist.all_reduce(largest, dist.ReduceOp.MAX, group=over)
        assert largest.eq(SIZE - 1).all()
    assert prepared(over) == 10


def test_the_oldest_make_room_for_others() -> None:
    over = group()
    for count in (*range(1, KEPT + 10), *range(KEPT + 9, 0, -1)):
        summed(over, count)
    assert prepared(over) == KEPT


def test_large_and_empty_tensors_and_other_dtypes_are_not_prepared() -> None:
    over = group()
    for _ in range(2):
        summed(over, 0)
        summed(over, 1025)
        summed(over, 3, torch.int8)
    assert prepared(over) == 1  # that of int32, by which int8 goes


@pytest.mark.parametrize("view", ["strided", "negated", "transposed", "offset", "needs grad"])
def test_views_are_reduced_as_they_read(view: str) -> None:
    over = group()
    summed(over, 6)
    base = torch.arange(24.0)
    views = {
        "strided": base[::4],
        "negated": torch.complex(base[:6], base[:6]).conj().imag,
        "transposed": base[:6].view(2, 3).t(),
        "offset": base[9:15],
        "needs grad": base[:6].clone().requires_grad_(),
    }
    before, tensor = base.clone(), views[view]
    expected = tensor.detach().clone() * SIZE
    dist.all_reduce(tensor, group=over)
    assert torch.equal(tensor.detach(), expected)
    touched = {"strided": range(0, 24, 4), "transposed": range(6), "offset": range(9, 15)}.get(view, range(0))
    assert all(base[at] == before[at] for at in set(range(24)) - set(touched))


def test_synchronous_and_asynchronous_calls_of_one_kind_keep_their_order() -> None:
    over = group()
    tensors = [torch.full((3,), float(RANK + number)) for number in range(60)]
    works = []
    for number, tensor in enumerate(tensors):
        work = dist.all_reduce(tensor, group=over, async_op=number % 3 > 0)
        if work is not None:
            works.append(work)
    for work in works:
        work.wait()
    for number, tensor in enumerate(tensors):
        assert tensor.eq(sum(rank + number for rank in range(SIZE))).all()


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_comes_late_is_waited_for() -> None:
    over = group()
    summed(over, 2)
    if RANK == SIZE - 1:
        time.sleep(0.5)
    summed(over, 2)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("before", [0, 1])
def test_a_rank_that_never_comes_is_told_and_the_tensor_left_as_it_was(before: int) -> None:
    over, others = group(), group()
    over.set_timeout(timedelta(seconds=0.5))
    for _ in range(before):
        summed(over, 2)
    if RANK:
        tensor = torch.ones(2)
        with pytest.raises(DeadlineError, match=f"all_reduce of 2 float32, operation {before + 1}"):
            dist.all_reduce(tensor, group=over)
        assert tensor.eq(1).all()
        with pytest.raises(DeadlineError, match="dead"):
            dist.all_reduce(tensor, group=over)
    COMM.Barrier()
    summed(others, 2)


def test_every_call_is_recorded_whether_prepared_or_not() -> None:
    over = group()
    assert isinstance(over, HpccommProcessGroup)
    for _ in range(4):
        summed(over, 5)
    last = over._runner.log.last()
    assert [entry.sequence for entry in last] == [1, 2, 3, 4]
    assert {str(entry).split(",")[0] for entry in last} == {"all_reduce of 5 float32"}
    assert {entry.state for entry in last} == {"done"}


@pytest.fixture
def nothing_to_prepare(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks(*_: object) -> None:
        raise NotImplementedError

    monkeypatch.setattr("hpccomm.backends.prepared.Prepared", lacks)


def test_a_library_without_persistent_collectives_reduces_too(nothing_to_prepare: None) -> None:
    over = group()
    for _ in range(3):
        summed(over, 4)
        dist.barrier(over)
    assert prepared(over) == 0


class Refusing:
    """A communicator whose library answers with an error where a collective is to be prepared."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def Barrier_init(self) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error", [NotImplementedError(), MPI.Exception(MPI.ERR_UNSUPPORTED_OPERATION), MPI.Exception(MPI.ERR_OTHER)]
)
def test_nothing_is_prepared_where_the_library_says_that_it_cannot(error: Exception) -> None:
    refusing: Any = Refusing(error)
    assert prepare(refusing) is None


@pytest.mark.parametrize("number", [MPI.ERR_COMM, MPI.ERR_INTERN])
def test_an_error_that_says_something_else_is_raised(number: int) -> None:
    refusing: Any = Refusing(MPI.Exception(number))
    with pytest.raises(MPI.Exception) as raised:
        prepare(refusing)
    assert raised.value.Get_error_class() == number


def barrier_of_one_rank_is_not_begun(over: dist.ProcessGroup) -> None:
    assert isinstance(over, HpccommProcessGroup)
    if RANK == 0:
        over._runner.backend.barrier().close()
        over._runner.backend.all_reduce(torch.ones(2), dist.ReduceOp.SUM).close()
    dist.barrier(over)
    summed(over, 4)


def test_an_operation_is_posted_when_it_is_stepped() -> None:
    barrier_of_one_rank_is_not_begun(group())


def test_an_operation_is_posted_when_it_is_stepped_without_persistent_collectives_too(nothing_to_prepare: None) -> None:
    barrier_of_one_rank_is_not_begun(group())
