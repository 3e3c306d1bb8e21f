"""What `nccl_cupy` asks NCCL for: addresses, counts, types and groups, with MPI and host memory in NCCL's place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.distributed import ReduceOp
from worlds import COMM, world

import nccl_stand_in
from hpccomm.algorithms import ALGORITHMS
from hpccomm.backends.base import Backend, LibraryCall, Operation, together
from hpccomm.backends.context import Context
from hpccomm.backends.door import FrontDoor
from hpccomm.backends.execute import execute
from hpccomm.backends.nccl_cupy import NcclCupyBackend
from hpccomm.errors import UnsupportedError
from reference import ARITHMETIC, Op, integers, reduced

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(COMM.size > 3, reason="nothing new with more ranks")]

RANKS, RANK = range(COMM.size), COMM.rank
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.uint8, torch.bool)


class OnHost(NcclCupyBackend):
    """The leaf where the host's memory stands for a GPU's."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, nccl_stand_in)
        self.support = replace(self.support, devices=frozenset({"cpu"}))

    def _on_device(self) -> Any:
        return nullcontext()

    def _stream(self) -> int:
        return nccl_stand_in.STREAM


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with world("A" * COMM.size, "mpi4py") as made:
        leaf = OnHost(made.group._runner.backend.context.child("nccl"))  # type: ignore[attr-defined]
        yield leaf
        leaf.close()


def run(operation: Operation) -> None:
    for waits in operation:
        if isinstance(waits, LibraryCall):
            waits.call(30.0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", ARITHMETIC, ids=lambda op: op.name)
def test_reductions(backend: Backend, op: Op, dtype: torch.dtype) -> None:
    door = FrontDoor(backend)
    inputs = [integers(rank, 13, dtype) for rank in RANKS]
    tensor, root = inputs[RANK].clone(), COMM.size - 1
    if dtype == torch.bool and op == ReduceOp.AVG:
        with pytest.raises(UnsupportedError):
            door.all_reduce(tensor, op)
        return
    run(door.all_reduce(tensor, op))
    assert torch.equal(tensor, reduced(op, inputs).to(dtype))
    tensor = inputs[RANK].clone()
    run(door.reduce(tensor, op, root))
    assert torch.equal(tensor, reduced(op, inputs).to(dtype) if root == RANK else inputs[RANK])
    whole = [integers(rank, 5 * COMM.size, dtype) for rank in RANKS]
    output = torch.zeros(5, dtype=dtype)
    run(door.reduce_scatter(output, [whole[RANK]], op))
    assert torch.equal(output, reduced(op, whole).to(dtype)[RANK * 5 : RANK * 5 + 5])


@pytest.mark.parametrize("counts", ([3] * COMM.size, list(range(1, COMM.size + 1))), ids=("equal", "unequal"))
def test_movements(backend: Backend, counts: Sequence[int]) -> None:
    door = FrontDoor(backend)
    sent = [integers(rank, count, torch.int64) + 10 * rank for rank, count in enumerate(counts)]
    outputs = [torch.zeros(count, dtype=torch.int64) for count in counts]
    run(door.all_gather(outputs, sent[RANK]))
    assert all(map(torch.equal, outputs, sent))
    for root in RANKS:
        tensor = sent[RANK][:1].clone()
        run(door.broadcast(tensor, root))
        assert torch.equal(tensor, sent[root][:1])
    blocks = [torch.full((count,), RANK) for count in counts]
    received = [torch.zeros(counts[RANK], dtype=torch.int64) for _ in RANKS]
    run(door.all_to_all(received, blocks))
    assert [set(one.tolist()) for one in received] == [{rank} for rank in RANKS]


def test_messages_in_opposite_directions_go_as_one_group(backend: Backend) -> None:
    """The stand-in's sends wait for their receivers, so that one after the other would never end."""
    right, left = (RANK + 1) % COMM.size, (RANK - 1) % COMM.size
    for _ in range(2):
        received = torch.zeros(7)
        run(together([backend.send(torch.full((7,), float(RANK)), right, 0), backend.recv(received, left, 0)]))
        assert set(received.tolist()) == {float(left)}
    with pytest.raises(UnsupportedError, match="NCCL has no tags"):
        backend.send(received, right, 5)


@pytest.mark.parametrize("name", ("ring", "halving_doubling", "pairwise"))
def test_schedules_over_its_messages(backend: Backend, name: str) -> None:
    schedule = ALGORITHMS[name].all_reduce
    assert schedule is not None
    inputs = [integers(rank, 40, torch.float32) for rank in RANKS]
    tensor = inputs[RANK].clone()
    run(execute(schedule(RANK, COMM.size, 40), backend, tensor, ReduceOp.SUM))
    assert torch.equal(tensor, reduced(ReduceOp.SUM, inputs).float())
