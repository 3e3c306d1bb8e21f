"""Ranks that call different things: one error on all of them that says who called what, and the group lives on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, world

import hpccomm
from hpccomm.errors import MismatchError

pytestmark = pytest.mark.mpi(min_size=2)

RANK, SIZE = COMM.rank, COMM.size
LAST = SIZE - 1


@pytest.fixture(
    scope="module", params=["checked(mpi4py)", "checked(hierarchical(mpi4py, gloo))", "checked(ring(gloo))"]
)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world("AABB"[:SIZE], request.param, timeout_s=20) as made:
        yield made


def reduce(count: int = 4, dtype: torch.dtype = torch.float32, op: Any = dist.ReduceOp.SUM) -> None:
    dist.all_reduce(torch.ones(count, dtype=dtype), op)


MISTAKES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "another collective": (reduce, lambda: dist.broadcast(torch.ones(4), 0), "broadcast of 4 float32 root 0 on rank"),
    "a barrier": (dist.barrier, reduce, "barrier of on rank|barrier on rank"),
    "another size": (reduce, lambda: reduce(5), "all_reduce of 5 float32 with SUM on rank"),
    "nothing to reduce": (reduce, lambda: reduce(0), "all_reduce of 0 float32 with SUM on rank"),
    "another dtype": (reduce, lambda: reduce(dtype=torch.bfloat16), "all_reduce of 4 bfloat16 with SUM on rank"),
    "another operator": (reduce, lambda: reduce(op=dist.ReduceOp.MAX), "all_reduce of 4 float32 with MAX on rank"),
    "another root": (
        lambda: dist.broadcast(torch.ones(4), 0),
        lambda: dist.broadcast(torch.ones(4), LAST),
        "broadcast of 4 float32 root 0 on rank",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_difference_is_one_error_on_all_ranks(case: hpccomm.World, mistake: str) -> None:
    usual, other, words = MISTAKES[mistake]
    with pytest.raises(MismatchError, match=words) as raised:
        (other if RANK == LAST else usual)()
    assert len(set(COMM.allgather(str(raised.value)))) == 1
    tensor = torch.full((3,), float(RANK))
    dist.all_reduce(tensor)
    assert tensor.tolist() == [float(sum(range(SIZE)))] * 3


def test_asynchronous_operations_are_compared_too(case: hpccomm.World) -> None:
    def both() -> None:
        work = dist.all_reduce(torch.ones(3 + (RANK == LAST)), async_op=True)
        assert work is not None
        work.wait()

    with pytest.raises(MismatchError, match="all_reduce of 4 float32"):
        both()
    dist.barrier()


def test_what_may_differ_is_let_pass(case: hpccomm.World) -> None:
    outputs = [torch.empty(RANK + 1) for _ in range(SIZE)]
    dist.all_to_all(outputs, [torch.full((rank + 1,), float(RANK)) for rank in range(SIZE)])
    assert all(output.eq(rank).all() for rank, output in enumerate(outputs))
    blocks = [torch.empty(2) for _ in range(SIZE)] if RANK == 0 else None
    dist.gather(torch.full((2,), float(RANK)), blocks, 0)
    objects: list[object] = [None] * SIZE
    dist.all_gather_object(objects, "x" * RANK)
    assert objects == ["x" * rank for rank in range(SIZE)]
