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


def coalesced(*counts: int) -> None:
    dist.group.WORLD.allreduce_coalesced([torch.ones(count) for count in counts]).wait()


def reduce_scatter(count: int) -> None:
    dist.reduce_scatter_tensor(torch.empty(count), torch.ones(count * SIZE))


def gather_several(*counts: int) -> None:
    sources = [torch.ones(count) for count in counts]
    outputs = [[torch.empty_like(source) for source in sources] for _ in range(SIZE)]
    dist.group.WORLD.allgather_coalesced(outputs, sources).wait()


def gather(count: int) -> None:
    dist.gather(torch.ones(count), [torch.empty(count) for _ in range(SIZE)] if RANK == 0 else None, 0)


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
    "another second size": (lambda: coalesced(4, 6), lambda: coalesced(4, 5), "of 4 float32, 5 float32 on rank"),
    "another last size of many": (lambda: coalesced(*[4] * 99, 6), lambda: coalesced(*[4] * 99, 5), "of 4 float32, 4"),
    "fewer tensors": (lambda: coalesced(4, 6), lambda: coalesced(4), "all_reduce of 4 float32 on rank"),
    "another size to scatter": (
        lambda: reduce_scatter(4),
        lambda: reduce_scatter(5),
        f"reduce_scatter of {5 * SIZE} float32 with SUM on rank",
    ),
    "sizes to gather in another order": (
        lambda: gather_several(4, 6),
        lambda: gather_several(6, 4),
        f"all_gather of {6 * SIZE} float32, {4 * SIZE} float32 on rank",
    ),
    "another size to the root": (lambda: gather(4), lambda: gather(5), "gather of 5 float32 root 0 on rank"),
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
    block = torch.empty(RANK + 1)
    dist.group.WORLD.reduce_scatter([block], [[torch.ones(rank + 1) for rank in range(SIZE)]]).wait()
    assert block.tolist() == [float(SIZE)] * (RANK + 1)
    blocks = [torch.empty(2) for _ in range(SIZE)] if RANK == 0 else None
    dist.gather(torch.full((2,), float(RANK)), blocks, 0)
    objects: list[object] = [None] * SIZE
    dist.all_gather_object(objects, "x" * RANK)
    assert objects == ["x" * rank for rank in range(SIZE)]
