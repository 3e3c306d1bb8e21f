"""Going on with another backend where one fails: right results on all ranks, or the same error."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import AllreduceOptions
from worlds import COMM, FEW_RANKS, group, notes, world

import hpccomm
from exact import COLLECTIVES, Check, all_reduce, barrier
from hpccomm.backends import shared
from hpccomm.backends.base import Operation
from hpccomm.backends.c10d import Op
from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.registry import register
from hpccomm.errors import BackendError, DeadGroupError, DeadlineError

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

SIZE, RANK, RANKS = COMM.size, COMM.rank, range(COMM.size)
LAST = SIZE - 1


@pytest.fixture(scope="module", autouse=True)
def standing() -> Iterator[hpccomm.World]:
    with world("A" * SIZE, "mpi4py") as made:
        yield made


@pytest.mark.parametrize("collective", [*COLLECTIVES, barrier], ids=lambda of: of.__name__)
@pytest.mark.parametrize("moment", ("before", "inside", "after"))
def test_the_next_backend_redoes_what_failed(collective: Check, moment: str) -> None:
    over = group(f"failover(faulty(mpi4py, raise(at={moment}), rank={LAST}, call=2), gloo)")
    for _ in range(4):
        collective(over)
    if moment != "inside" or notes(over):  # what never waits has no inside
        (note,) = notes(over)
        assert f"to gloo at call 2: rank {LAST}: " in note
        assert "on purpose" in note


@pytest.mark.parametrize("collective", COLLECTIVES, ids=lambda of: of.__name__)
def test_wrong_bits_never_get_out(collective: Check) -> None:
    for rank in RANKS:
        over = group(f"failover(faulty(mpi4py, wrong, rank={rank}, call=2), hierarchical(mpi4py, gloo, by=2))")
        for _ in range(3):
            collective(over)


@pytest.mark.parametrize("dtype", (torch.float64, torch.int64, torch.float16), ids=str)
def test_wrong_bits_never_get_out_of_any_dtype(dtype: torch.dtype) -> None:
    over = group(f"failover(faulty(mpi4py, wrong, rank={LAST}, call=1), gloo)")
    tensor = torch.ones(5, dtype=dtype)
    dist.all_reduce(tensor, group=over)
    assert tensor.tolist() == [SIZE] * 5
    assert len(notes(over)) == 1


@pytest.mark.parametrize(("kind", "why"), [("hang", "did not end in 1 s"), ("late, seconds=1.5", "did not end in 1 s")])
def test_a_backend_that_does_not_go_on_is_left(kind: str, why: str) -> None:
    over = group(f"failover(faulty(ring(mpi4py), {kind}, call=2, rank=0), gloo)", 3.0)
    for _ in range(3):
        all_reduce(over)
    (note,) = notes(over)
    assert why in note
    assert "to gloo at call 2: rank " in note


def test_a_deadline_that_is_changed_counts_for_what_hangs() -> None:
    over = group("failover(faulty(ring(mpi4py), hang, call=2, rank=0), gloo)", 60.0)
    over.set_timeout(timedelta(seconds=3.0))
    for _ in range(3):
        all_reduce(over)
    (note,) = notes(over)
    assert "did not end in 1 s" in note


@pytest.mark.parametrize("inner", ["ring(mpi4py)", "gloo"])
@pytest.mark.parametrize("waits", [True, False], ids=["waited for", "asynchronous"])
def test_the_deadline_of_a_call_counts_for_what_hangs_in_it(inner: str, waits: bool) -> None:
    """Half a minute would pass by the group's own deadline, and the call's would be over before."""
    over, options = group(f"failover(faulty({inner}, hang, call=2, rank=0), gloo)", 90.0), AllreduceOptions()
    options.asyncOp, options.timeout = not waits, timedelta(seconds=3.0)
    for _ in range(3):
        tensor = torch.ones(4)
        over.allreduce([tensor], options).wait()
        assert tensor.tolist() == [SIZE] * 4
    (note,) = notes(over)
    assert "did not end in 1 s" in note
    assert "to gloo at call 2: rank " in note


def test_what_is_late_in_time_is_no_failure() -> None:
    over = group("failover(faulty(mpi4py, late, seconds=0.3, call=2), gloo)")
    for _ in range(3):
        all_reduce(over)
    assert not notes(over)


def test_faults_may_follow_each_other_and_leave_none() -> None:
    over = group("failover(faulty(mpi4py, raise, call=2), faulty(gloo, raise, rank=0, call=1), tree(gloo))")
    for _ in range(3):
        all_reduce(over)
    assert [note.partition(" at call ")[2][:1] for note in notes(over)] == ["2", "3"]
    last = group("failover(faulty(mpi4py, raise, call=2), faulty(gloo, raise, rank=0, call=2))")
    all_reduce(last)
    all_reduce(last)
    with pytest.raises(BackendError, match="no backend is left; the last failed: rank 0: ") as failed:
        all_reduce(last)
    assert len(set(COMM.allgather(str(failed.value)))) == 1
    with pytest.raises(DeadGroupError):
        dist.send(torch.ones(1), (RANK + 1) % SIZE, group=last)


def test_a_backend_that_cannot_be_built_is_passed_over() -> None:
    over = group(f"failover(faulty(mpi4py, raise(at=construction), rank={LAST}), gloo)")
    all_reduce(over)
    (note,) = notes(over)
    assert "on purpose" in note
    with pytest.raises(BackendError, match="no backend is left"):
        group("failover(faulty(mpi4py, raise(at=construction)), faulty(gloo, raise(at=construction)))")
    dist.barrier()


def test_a_part_that_one_node_cannot_build_is_refused_on_all_nodes_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(size: int) -> str:
        raise shared._unshared("no room")

    if RANK == LAST:
        monkeypatch.setattr(shared, "_create", no_room)
    part, began = "hierarchical(shm, gloo, by=1)", time.monotonic()
    with pytest.raises(BackendError, match=f"share memory(.|\\n)*rank {LAST}: (.|\\n)*no room"):
        group(part)
    over = group(f"failover({part}, gloo)")
    assert time.monotonic() - began < 20.0
    all_reduce(over)
    (note,) = notes(over)
    assert "no room" in note


class Eager(GlooBackend):
    """Fails before it gives an operation."""

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        if RANK == 0:
            raise RuntimeError("at once")
        return super().all_reduce(buffer, op)


def test_what_fails_before_it_begins_is_redone_too() -> None:
    register("eager", Eager)
    over = group("failover(eager, gloo)")
    all_reduce(over)
    (note,) = notes(over)
    assert "at once" in note


def test_the_first_backend_is_tried_again() -> None:
    over = group("failover(faulty(mpi4py, raise, call=2), gloo, back_after=0.2)")
    for _ in itertools.takewhile(lambda _: len(notes(over)) < 2, range(100_000)):
        all_reduce(over)
    assert "from gloo back to faulty(mpi4py" in notes(over)[1]
    all_reduce(over)


def test_a_rank_that_does_not_come_to_the_return_is_not_waited_for_past_the_deadline() -> None:
    over = group("failover(faulty(mpi4py, raise, rank=0, call=1), gloo, back_after=0.1)", 1.5)
    for _ in range(2):
        all_reduce(over)
        time.sleep(0.2)
    if RANK == LAST:
        time.sleep(3.5)
    began = time.monotonic()
    with pytest.raises(DeadlineError):
        all_reduce(over)
    assert time.monotonic() - began < 3.0
    dist.barrier()


def test_results_that_are_not_compared_are_still_agreed_upon() -> None:
    over = group("failover(faulty(mpi4py, raise, call=3), gloo, verify=false)")
    for collective in COLLECTIVES:
        collective(over)
    (note,) = notes(over)
    assert " at call 3: " in note


def test_the_record_says_so(tmp_path: Path, standing: hpccomm.World) -> None:
    over = group("failover(faulty(mpi4py, raise, call=1), gloo)")
    all_reduce(over)
    file = standing.write_flight_record(tmp_path)
    assert file is not None
    noted = [found["notes"] for found in json.loads(file.read_text())["groups"]]
    assert [f"failover {note}" for note in notes(over)] in noted
    assert standing.fell_back == ()


def test_messages_of_any_rank_are_counted_alike_over_all_backends() -> None:
    over = group("failover(faulty(mpi4py, raise, rank=1, call=2), hierarchical(mpi4py, gloo))")
    tensor = torch.zeros(1)
    for _ in range(2):
        if RANK == 0:
            found = [dist.recv(tensor, group=over) for _ in RANKS[1:]]
            assert sorted(found) == list(RANKS[1:])
        else:
            dist.send(torch.ones(1), 0, group=over)
        all_reduce(over)
    assert len(notes(over)) == 1


def test_messages_under_way_arrive_though_another_backend_stands_now() -> None:
    over = group("failover(faulty(mpi4py, raise, rank=0, call=2), gloo)")
    if RANK == 0:
        first = dist.isend(torch.full((3,), 1.0), 1, group=over)
    all_reduce(over)
    all_reduce(over)
    assert len(notes(over)) == 1
    if RANK == 0:
        second = dist.isend(torch.full((3,), 2.0), 1, group=over)
        first.wait()
        second.wait()
    elif RANK == 1:
        tensor = torch.zeros(3)
        for value in (1.0, 2.0):
            dist.recv(tensor, 0, group=over)
            assert tensor.tolist() == [value] * 3
    dist.barrier()


def test_a_rank_that_comes_late_is_no_fault_of_the_backend() -> None:
    over = group("failover(mpi4py, gloo)", 3.0)
    if RANK == LAST:
        time.sleep(1.5)
    all_reduce(over)
    assert not notes(over)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_nans_are_alike_whatever_else_they_carry(dtype: torch.dtype) -> None:
    over = group("failover(recursive_doubling(mpi4py), gloo)")
    nan = torch.tensor([float("nan")], dtype=dtype)
    tensor = torch.cat([-nan if RANK else nan, torch.ones(2, dtype=dtype)])
    dist.all_reduce(tensor, group=over)
    assert tensor.isnan().tolist() == [True, False, False]
    assert not notes(over)
