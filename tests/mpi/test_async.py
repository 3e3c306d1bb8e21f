"""Asynchronous operations: order, independence of groups, progress without the caller, lifetime, and errors."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, by_this_mpi, world

import hpccomm
from hpccomm.errors import BackendError, DeadlineError

pytestmark = pytest.mark.mpi

RANK, SIZE = COMM.rank, COMM.size
BACKENDS = by_this_mpi(["mpi4py", "gloo", "hierarchical(mpi4py, gloo)", "ring(gloo)"])
ONCE = pytest.mark.parametrize("case", BACKENDS[:1], indirect=True)
"""For what makes groups of backends of its own, for which the world's does not matter."""

WAIT_S = 60.0


@pytest.fixture(scope="module", params=BACKENDS)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(("AAB" if SIZE == 3 else "AABB")[:SIZE], request.param) as made:
        yield made


def group() -> dist.ProcessGroup:
    made = dist.new_group(backend="hpccomm")
    assert isinstance(made, dist.ProcessGroup)
    return made


def spin(done: Any) -> int:
    """Compute in pure Python until `done()`, and count the rounds."""
    end = time.monotonic() + WAIT_S
    for rounds in itertools.count():
        if done():
            return rounds
        assert time.monotonic() < end, "nobody completed it"
    raise AssertionError


@pytest.mark.parametrize("count", [1, 50_000])
def test_future_completes_though_nobody_waits(case: hpccomm.World, count: int) -> None:
    tensor = torch.full((count,), float(RANK))
    COMM.Barrier()
    if RANK == 0:
        time.sleep(0.2)  # the others' operations cannot end inside the call
    future = dist.all_reduce(tensor, async_op=True).get_future()
    completed_in: list[str] = []
    told = future.then(lambda _: completed_in.append(threading.current_thread().name))
    rounds = spin(told.done)
    assert future.value()[0][0] == sum(range(SIZE))
    if RANK > 0 and SIZE > 1:
        assert completed_in == ["hpccomm-progress"]
        assert rounds > 0


def test_a_thousand_operations_on_three_groups_all_complete(case: hpccomm.World) -> None:
    groups = [group() for _ in range(3)]
    total = 999 if case.backend == "mpi4py" else 90
    ended: list[list[int]] = [[], [], []]
    works = []
    for number in range(total):
        which = number % 3 if RANK % 2 == 0 else (-number - 1) % 3  # the ranks use the groups in opposite orders
        row = number // 3
        tensor = torch.full((row % 7 + 1,), float(row + RANK))
        work = dist.all_reduce(tensor, group=groups[which], async_op=True)
        note = work.get_future().then(lambda _, which=which, row=row: ended[which].append(row))
        works.append((work, note, tensor, row))
    for work, note, _, _ in works:
        work.wait()
        note.wait()
    for _, _, tensor, row in works:
        assert set(tensor.tolist()) == {float(SIZE * row + sum(range(SIZE)))}
    assert [sorted(rows) for rows in ended] == [list(range(total // 3))] * 3


@pytest.mark.parametrize("count", [3, 100_000])
def test_groups_may_be_used_in_opposite_orders(case: hpccomm.World, count: int) -> None:
    groups = [group(), group()]
    order = (0, 1) if RANK % 2 else (1, 0)
    for repeat in range(5):
        tensors = [torch.full((count,), float(RANK + which + repeat)) for which in (0, 1)]
        works = [dist.all_reduce(tensors[which], group=groups[which], async_op=True) for which in order]
        for work in works:
            assert work.wait()
        expected = [sum(range(SIZE)) + SIZE * (which + repeat) for which in (0, 1)]
        assert [tensor[-1].item() for tensor in tensors] == expected


def test_a_dropped_handle_does_no_harm(case: hpccomm.World) -> None:
    kept = torch.full((1000,), 1.0)
    for _ in range(20):
        dist.all_reduce(torch.full((50_000,), 1.0), async_op=True)  # both the tensor and the handle are dropped
    dist.all_reduce(kept, async_op=True)
    gc.collect()
    dist.barrier()
    assert kept.tolist() == [float(SIZE)] * 1000


def test_synchronous_calls_keep_their_place_after_asynchronous_ones(case: hpccomm.World) -> None:
    tensor = torch.full((1000,), 1.0)
    for _ in range(3):
        dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(tensor)
    assert tensor[0] == SIZE**4


@ONCE
@pytest.mark.parametrize("expression", ["mpi4py", "direct(mpi4py)"])
def test_operations_read_their_tensor_when_it_is_their_turn(case: hpccomm.World, expression: str) -> None:
    queued = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(expression))
    dense, column = torch.ones(500), torch.ones(500, 3)[:, 1]
    blocks = [torch.zeros(500) for _ in range(SIZE)] if RANK == 0 else None
    for tensor in (dense, column):
        if RANK == SIZE - 1:
            time.sleep(0.1)  # the others' operations stand in the queue
        works = [
            dist.all_reduce(tensor, group=queued, async_op=True),
            dist.broadcast(tensor, 0, group=queued, async_op=True),
            dist.all_reduce(tensor, group=queued, async_op=True),
            dist.gather(tensor, blocks, 0, group=queued, async_op=True),
        ]
        for work in works:
            work.wait()
        assert tensor.eq(SIZE * SIZE).all()
        assert all(block.eq(SIZE * SIZE).all() for block in blocks or ())


def test_two_threads_on_one_group_take_turns(case: hpccomm.World) -> None:
    wrong: list[float] = []

    def reduce(times: int) -> None:
        for _ in range(times):
            tensor = torch.full((500,), 1.0)  # the same in both threads, as their order may differ between ranks
            dist.all_reduce(tensor)
            wrong.extend(set(tensor.tolist()) - {float(SIZE)})

    threads = [threading.Thread(target=reduce, args=(20,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive()
    assert wrong == []


@pytest.mark.mpi(min_size=2)
def test_point_to_point_goes_on_without_the_caller(case: hpccomm.World) -> None:
    following, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    arrived = [torch.zeros(size) for size in (0, 1, 1000, 300_000)]
    receiving = [dist.irecv(tensor, before, tag=tag) for tag, tensor in enumerate(arrived)]
    sending = [dist.isend(torch.full_like(tensor, RANK), following, tag=tag) for tag, tensor in enumerate(arrived)]
    works = [work for work in receiving + sending if work is not None]
    spin(lambda: all(work.is_completed() for work in works))
    assert all(tensor.eq(before).all() for tensor in arrived)


@pytest.mark.mpi(min_size=2)
def test_batched_point_to_point(case: hpccomm.World) -> None:
    arrived = torch.zeros(100)
    swaps = [
        dist.P2POp(dist.isend, torch.full((100,), float(RANK)), (RANK + 1) % SIZE),
        dist.P2POp(dist.irecv, arrived, (RANK - 1) % SIZE),
    ]
    for work in dist.batch_isend_irecv(swaps):
        work.wait()
    assert arrived.eq((RANK - 1) % SIZE).all()


@ONCE
@pytest.mark.mpi(min_size=2)
def test_an_operation_that_never_ends_fails_its_handle_and_those_behind_it(case: hpccomm.World) -> None:
    struck = dist.new_group(
        backend="hpccomm", pg_options=hpccomm.Options("faulty(mpi4py, hang, call=2)"), timeout=timedelta(seconds=1)
    )
    works = [dist.all_reduce(torch.ones(4), group=struck, async_op=True) for _ in range(4)]
    assert works[0].wait()
    for work in works[1:]:
        with pytest.raises((DeadlineError, BackendError)):
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
    COMM.Barrier()


@ONCE
@pytest.mark.mpi(min_size=2)
def test_wait_may_bring_its_own_deadline(case: hpccomm.World) -> None:
    struck = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("faulty(mpi4py, hang, rank=0)"))
    work = dist.all_reduce(torch.ones(4), group=struck, async_op=True)
    with pytest.raises(DeadlineError):
        work.wait(timedelta(seconds=0.5))
    COMM.Barrier()


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("count", [1, 50_000])
def test_a_callback_may_wait_for_another_operation_of_its_group(case: hpccomm.World, count: int) -> None:
    def again(first: Any) -> torch.Tensor:
        second = torch.full((count,), first.value()[0][0].item())
        (reduced,) = dist.all_reduce(second, async_op=True).get_future().wait()
        assert isinstance(reduced, torch.Tensor)
        return reduced

    for _ in range(2):
        if RANK == 0:
            time.sleep(0.2)  # the others' callbacks run in the engine
        future = dist.all_reduce(torch.ones(count), async_op=True).get_future().then(again)
        spin(future.done)
        assert future.value()[0] == SIZE * SIZE
    spin(lambda: sys.getswitchinterval() > 1e-3)


@pytest.mark.mpi(min_size=2)
def test_a_callback_may_wait_for_what_was_asked_for_before(case: hpccomm.World) -> None:
    other = dist.new_group(backend="hpccomm")
    for group in (None, other):
        if RANK == 0:
            time.sleep(0.2)  # the others' callbacks run in the engine
        first = dist.all_reduce(torch.ones(50_000), async_op=True)
        later = [dist.all_reduce(torch.ones(50_000), group=among, async_op=True) for among in (group, None)]
        told = first.get_future().then(lambda _, later=later: [work.wait() for work in later])
        spin(told.done)
        assert told.value() == [True, True]


@pytest.mark.mpi(min_size=2)
def test_a_callback_may_call_and_wait(case: hpccomm.World) -> None:
    other = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("ring(mpi4py)"))

    def again(_: Any) -> float:
        tensor = torch.full((50_000,), 2.0)
        dist.all_reduce(tensor, group=other)
        return tensor[-1].item()

    if RANK == 0:
        time.sleep(0.2)
    first = dist.all_reduce(torch.ones(50_000), async_op=True)
    behind = dist.all_reduce(torch.ones(50_000), async_op=True)
    told = first.get_future().then(again)
    if RANK == 0:
        behind.wait()  # and so needs the others' engines before it comes to the callback's call
    spin(told.done)
    behind.wait()
    assert told.value() == 2 * SIZE


@ONCE
@pytest.mark.mpi(min_size=2)
def test_later_changes_of_the_deadline_are_obeyed(case: hpccomm.World) -> None:
    struck = dist.new_group(
        backend="hpccomm", pg_options=hpccomm.Options("faulty(mpi4py, hang, call=2)"), timeout=timedelta(seconds=60)
    )
    dist.all_reduce(torch.ones(4), group=struck)
    struck._set_default_timeout(timedelta(seconds=0.5))
    start = time.monotonic()
    with pytest.raises(DeadlineError):
        dist.all_reduce(torch.ones(4), group=struck)
    assert time.monotonic() - start < WAIT_S / 2
    COMM.Barrier()


@ONCE
@pytest.mark.mpi(min_size=2)
def test_a_call_may_bring_its_own_deadline(case: hpccomm.World) -> None:
    struck = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("faulty(mpi4py, hang)"))
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=0.5)
    options.asyncOp = False
    with pytest.raises(DeadlineError):
        struck.allreduce([torch.ones(4)], options)
    COMM.Barrier()
