"""Faults put in on purpose: what the ranks see, and that the group is dead and others live on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from mpi4py import MPI
from worlds import COMM, FEW_RANKS, group, world

import hpccomm
from hpccomm.backends.context import Context
from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.registry import register
from hpccomm.bootstrap.renewal import renew
from hpccomm.errors import BackendError, DeadlineError

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

RANK, LAST = COMM.rank, COMM.size - 1


@pytest.fixture(scope="module", autouse=True)
def standing() -> Iterator[hpccomm.World]:
    with world("A" * COMM.size, "mpi4py") as made:
        yield made


def all_reduce(over: dist.ProcessGroup) -> float:
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=over)
    return float(tensor[0])


@pytest.mark.parametrize("inner", ["mpi4py", "gloo"])
@pytest.mark.parametrize("kind", ["raise", "hang"])
def test_a_rank_that_fails_kills_the_group_on_all_ranks_and_no_other(kind: str, inner: str) -> None:
    struck = group(f"faulty({inner}, {kind}, rank=1, call=2)", 1.0)
    assert all_reduce(struck) == COMM.size
    with pytest.raises(BackendError if kind == "raise" else DeadlineError) as failed:
        all_reduce(struck)
    assert "faulty(" in str(failed.value)
    with pytest.raises(BackendError if kind == "raise" else DeadlineError, match="dead"):
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


def test_a_group_that_is_refused_gives_all_its_communicators_back(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = list[MPI.Comm](), Context._subcommunicator

    def recorded(self: Context, *arguments: object) -> MPI.Comm:
        made.append(make(self, *arguments))
        return made[-1]

    monkeypatch.setattr(Context, "_subcommunicator", recorded)
    with pytest.raises(BackendError, match="on purpose"):
        group("hierarchical(mpi4py, faulty(mpi4py, raise(at=construction), rank=0), by=1)", 30)
    assert len(made) == 5  # control, data, intra, peers, and what is inside those
    assert made == [MPI.COMM_NULL] * 5


@pytest.mark.parametrize("ranks", [None, [0, LAST]], ids=str)
def test_a_group_to_which_a_rank_comes_late_is_given_up_at_its_deadline(ranks: list[int] | None) -> None:
    timeout, alone = timedelta(seconds=1.0 if RANK < LAST else 0.3), ranks is not None  # the members alone call
    COMM.Barrier()
    if not alone or RANK in ranks:
        if RANK == LAST:
            time.sleep(1.6)
        with pytest.raises(DeadlineError, match=f"make group (.|\\n)*no sign of rank {LAST if RANK < LAST else 0}"):
            dist.new_group(ranks, backend="hpccomm", timeout=timeout, use_local_synchronization=alone)
    else:  # torch numbers groups where they are made, and numbers are to stay alike
        dist.new_group([RANK], backend="hpccomm", use_local_synchronization=True)
    COMM.Barrier()
    assert all_reduce(group("mpi4py", 30)) == COMM.size


@pytest.mark.parametrize("inner", ["mpi4py", "ring(mpi4py)"])
@pytest.mark.parametrize("size", [5, 15])
def test_a_message_of_another_size_is_an_error(inner: str, size: int) -> None:
    pair = group(inner, 20)
    if RANK == 0:
        pair.send([torch.ones(10)], 1, 0).wait()
    elif RANK == 1:
        with pytest.raises(BackendError, match=r"recv of|receive"):
            pair.recv([torch.ones(size)], 0, 0).wait()
    COMM.Barrier()


def test_different_calls_on_shared_memory_are_refused_on_all_ranks() -> None:
    over = group("shm(crossover=1)", 20)
    with pytest.raises(BackendError, match="different operations"):
        dist.all_reduce(torch.ones(10 + (RANK == 1)), group=over)
    COMM.Barrier()


def test_a_rank_that_is_late_in_shared_memory_finds_what_was_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 goes on when the others have given up and written over their tensors: it fails, or is right."""
    over, tensor = group("shm(crossover=1)", 1.0), torch.full((1000,), RANK + 1.0)
    backend, reached = over._runner.backend, []
    reduce = backend._reduce

    def late(*arguments: object) -> None:
        reached.append(time.sleep(1.8))
        reduce(*arguments)

    if RANK == 0:
        monkeypatch.setattr(backend, "_reduce", late)
    try:
        dist.all_reduce(tensor, group=over)
    except (DeadlineError, BackendError):
        tensor.fill_(-1)
    else:
        assert (tensor == COMM.size * (COMM.size + 1) // 2).all()
    COMM.Barrier()
    assert len(reached) == (RANK == 0)
    assert RANK == 0 or (tensor == -1).all()


def test_a_deadline_names_the_missing_rank() -> None:
    over = group("mpi4py", 1)
    if RANK:
        with pytest.raises(DeadlineError, match=r"rank 0 on \S+ has not come: .*(group|called|last)"):
            all_reduce(over)
    COMM.Barrier()


@pytest.mark.parametrize(
    "backend",
    ["mpi4py", "gloo", "hierarchical(mpi4py, gloo)", "mpi4py(deadline=strict)", "shm", "shm(crossover=1)"],
)
def test_a_group_is_renewed_after_a_rank_was_late(backend: str, standing: hpccomm.World) -> None:
    """The late rank finds the group given up; renewed, the same group object is right again."""
    over = group(backend, 0.7)
    assert all_reduce(over) == COMM.size
    if RANK == 0:
        time.sleep(1.2)
    for _ in range(2):
        with pytest.raises((DeadlineError, BackendError)):
            all_reduce(over)
    over._runner.timeout_s = 20.0
    renew(over)
    assert all_reduce(over) == COMM.size
    big = torch.full((50_000,), float(RANK))
    dist.all_reduce(big, group=over)
    assert big[-1] == sum(range(COMM.size))


class InTurn(GlooBackend):
    """Cannot be built on the last rank at every second time."""

    builds = 0

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        InTurn.builds += 1
        if InTurn.builds % 2 == 0 and RANK == LAST:
            raise BackendError("build backend in_turn", found="it is not its turn", remedy="try again")


def test_a_renewal_that_failed_spoils_none_after_it() -> None:
    register("in_turn", InTurn)
    over = group("in_turn", 20)
    for _ in range(2):
        with pytest.raises(BackendError, match="not its turn"):
            renew(over)
        with pytest.raises(BackendError, match="dead"):
            all_reduce(over)
        COMM.Barrier()
        over._runner.timeout_s = 1.0 if RANK < LAST else 0.3
        if RANK == LAST:
            time.sleep(1.6)
        with pytest.raises(DeadlineError, match=f"no sign of rank {LAST if RANK < LAST else 0}"):
            renew(over)
        over._runner.timeout_s = 20.0
        COMM.Barrier()
        renew(over)
        assert all_reduce(over) == COMM.size


def test_a_world_is_renewed(standing: hpccomm.World) -> None:
    before = dist.group.WORLD
    standing.renew()
    assert dist.group.WORLD is before
    assert all_reduce(before) == COMM.size
    assert all_reduce(standing.intra_node) == COMM.size


def test_a_receive_from_any_rank_waits_for_a_late_sender_and_ends_with_its_group() -> None:
    over, tensor = group("hierarchical(mpi4py, gloo, by=2)", 1.5), torch.zeros(3)
    if RANK == 0:
        work = over.recv_anysource([tensor], 3)
        time.sleep(0.2)
    dist.barrier()
    if RANK == LAST:
        dist.send(torch.ones(3), 0, group=over, tag=3)
    if RANK == 0:
        work.wait()
        assert (work._source_rank(), tensor.tolist()) == (LAST, [1.0] * 3)
        with pytest.raises(DeadlineError, match="a message of any rank"):
            dist.recv(tensor, group=over, tag=3)
    dist.barrier()


def test_a_monitored_barrier_names_all_that_do_not_come() -> None:
    over = group("mpi4py", 30)
    over.monitored_barrier()
    if RANK == 0:
        with pytest.raises(DeadlineError) as failed:
            over.monitored_barrier(timedelta(seconds=0.5), wait_all_ranks=True)
        assert all(f"rank {rank} on" in failed.value.found for rank in range(1, COMM.size))
    dist.barrier()
