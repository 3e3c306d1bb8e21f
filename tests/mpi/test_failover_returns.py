"""Failover after the first fault: what is come back to, what is not, and what a failed attempt leaves behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, FEW_RANKS, group, notes, world

import hpccomm
from exact import all_reduce
from hpccomm.backends.base import Operation
from hpccomm.backends.c10d import Op
from hpccomm.backends.context import Context
from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.registry import register
from hpccomm.errors import DeadlineError

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

SIZE, RANK = COMM.size, COMM.rank
LAST = SIZE - 1


@pytest.fixture(scope="module", autouse=True)
def standing() -> Iterator[hpccomm.World]:
    with world("A" * SIZE, "mpi4py") as made:
        yield made


def test_a_backend_that_was_left_is_not_used_again_after_a_return() -> None:
    first, second = "faulty(mpi4py, raise, rank=0, call=2)", "faulty(ring(mpi4py), raise, rank=0, call=1)"
    over = group(f"failover({first}, {second}, gloo, back_after=0.2, verify=false)")
    for _ in itertools.takewhile(lambda _: len(notes(over)) < 4, range(100_000)):
        all_reduce(over)
    there = [note.partition(" at call ")[0].rpartition(" to ")[2] for note in notes(over)]
    assert [name.partition("(")[0] for name in there[:2] + there[3:]] == ["faulty", "gloo", "gloo"]


class OnceThere(GlooBackend):
    """Stands for a network that goes away, and then makes who builds on it wait."""

    built = False

    def __init__(self, context: Context) -> None:
        if self.built:
            time.sleep(context.timeout_s)
            raise RuntimeError("it is gone")
        super().__init__(context)
        type(self).built = True

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        raise RuntimeError("it goes")


def test_a_return_that_fails_costs_neither_the_operation_nor_channels() -> None:
    register("once_there", OnceThere)
    over = group("failover(once_there, mpi4py, back_after=0.1)", 3.0)
    all_reduce(over)
    parts = len(over._runner.backend.context.parts)
    time.sleep(0.2)
    for _ in range(2):
        all_reduce(over)
    (note,) = notes(over)
    assert "it goes" in note
    assert len(over._runner.backend.context.parts) == parts


def test_a_rank_that_comes_too_late_to_a_construction_fails_it_on_all() -> None:
    with pytest.raises(DeadlineError):
        group(f"failover(faulty(mpi4py, late(at=construction), rank={LAST}, seconds=2.5), gloo)", 1.5)
    dist.barrier()


def test_a_receive_that_was_given_up_takes_no_core() -> None:
    """Gloo's thread polls a connection without a pause while a message on it belongs to no receive."""
    backend = group("gloo")._runner.backend
    if RANK == 0:
        receiving = backend.recv(torch.zeros(4), LAST, 7)
        next(receiving)
        receiving.close()
    dist.barrier()
    if RANK == LAST:
        sending = backend.send(torch.ones(4), 0, 7)
        next(sending)
    dist.barrier()
    began = time.process_time()
    time.sleep(0.4)
    taken_s = time.process_time() - began
    dist.barrier()
    assert taken_s < 0.2


def test_the_root_of_a_broadcast_keeps_its_tensor_untouched() -> None:
    """Autograd may have saved it, and its memory may be read-only."""
    tensor = torch.full((3,), float(RANK))
    changes = {}
    for backend in ("mpi4py", "failover(mpi4py, gloo)"):
        over, before = group(backend), tensor._version
        dist.broadcast(tensor, 0, group=over)
        changes[backend] = tensor._version - before
        assert tensor.tolist() == [0.0] * 3
    assert RANK or len(set(changes.values())) == 1
