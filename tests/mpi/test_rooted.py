"""Collectives with a root, all_to_all, and receives from any rank: every dtype, sizes, layouts, objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from worlds import CASES, COMM, LEAVES, by_this_mpi, world

import hpccomm
from hpccomm.errors import UnsupportedError
from reference import has_meaning, integers, pairs, reduced

pytestmark = pytest.mark.mpi

RANKS, RANK, SIZE = range(COMM.size), COMM.rank, COMM.size
COUNTS = (0, 1, 5, 300)
SCHEDULED = [("A" * SIZE, backend) for backend in by_this_mpi(["ring(mpi4py)", "naive(mpi4py)", "tree(gloo)"])]


@pytest.fixture(scope="module", params=CASES + SCHEDULED, ids=lambda case: f"{case[1]} on {case[0]}".replace(" ", ""))
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def test_reduce_gives_the_root_the_result_and_leaves_the_others(case: hpccomm.World) -> None:
    root = SIZE - 1
    for op, dtype in pairs(every=case.backend in LEAVES):
        if has_meaning(op, dtype):
            inputs = [integers(rank, 13, dtype) for rank in RANKS]
            tensor = inputs[RANK].clone()
            options = dist.ReduceOptions()
            options.reduceOp, options.rootRank = op, root
            dist.group.WORLD.reduce([tensor], options).wait()
            expected = reduced(op, inputs).to(dtype) if root == RANK else inputs[RANK]
            assert torch.equal(tensor, expected), (op, dtype)


def test_gather_and_scatter(case: hpccomm.World) -> None:
    for dtype, count, root in itertools.product((torch.bfloat16, torch.complex64), COUNTS, RANKS):
        blocks = [torch.empty(count, dtype=dtype) for _ in RANKS] if root == RANK else None
        dist.gather(integers(RANK, count, dtype), blocks, root)
        if blocks is not None:
            assert all(torch.equal(block, integers(rank, count, dtype)) for rank, block in enumerate(blocks))
        mine = torch.empty(count, dtype=dtype)
        dist.scatter(mine, [integers(rank, count, dtype) for rank in RANKS] if root == RANK else None, root)
        assert torch.equal(mine, integers(RANK, count, dtype)), (dtype, count, root)


def test_rooted_collectives_take_any_layout(case: hpccomm.World) -> None:
    base = torch.zeros(2, 4, 6)
    columns = [base[half, :, 1 + 2 * half] for half in (0, 1)]
    if SIZE <= 2:
        dist.gather(torch.full((4,), float(RANK)), columns[:SIZE] if RANK == 0 else None, 0)
        assert base.sum() == (4.0 * sum(RANKS) if RANK == 0 else 0)
    tensor = torch.arange(24.0).view(4, 6).t() if RANK == 0 else torch.empty(6, 4)
    dist.scatter(tensor, [torch.arange(24.0).view(6, 4)] * SIZE if RANK == 0 else None, 0)
    assert torch.equal(tensor, torch.arange(24.0).view(6, 4))
    strided = torch.full((4, 6), 7.0)
    strided[:, 2] = RANK
    dist.reduce(strided[:, 2], SIZE - 1)
    assert strided[:, 2].tolist() == [float(sum(RANKS) if RANK == SIZE - 1 else RANK)] * 4
    assert strided[:, 3].eq(7).all()


def test_all_to_all_of_equal_blocks(case: hpccomm.World) -> None:
    for dtype, count in itertools.product((torch.float64, torch.bool), COUNTS):
        source = torch.cat([integers(RANK * SIZE + rank, count, dtype) for rank in RANKS])
        output = torch.empty(count * SIZE, dtype=dtype)
        dist.all_to_all_single(output, source)
        expected = torch.cat([integers(rank * SIZE + RANK, count, dtype) for rank in RANKS])
        assert torch.equal(output, expected), (dtype, count)


def test_all_to_all_of_any_blocks(case: hpccomm.World) -> None:
    outputs = [torch.empty((rank * RANK) % 4, 3) for rank in RANKS]
    dist.all_to_all(outputs, [torch.full(((rank * RANK) % 4, 3), float(RANK * 10 + rank)) for rank in RANKS])
    assert all(output.eq(rank * 10 + RANK).all() for rank, output in enumerate(outputs))
    sent, received = [rank + 1 for rank in RANKS], [RANK + 1] * SIZE
    source = torch.repeat_interleave(torch.tensor(RANKS) + 100 * RANK, torch.tensor(sent)).view(-1, 1).repeat(1, 2)
    output = torch.empty(sum(received), 2, dtype=torch.int64)
    dist.all_to_all_single(output, source, received, sent)
    assert output[:, 1].tolist() == [100 * rank + RANK for rank in RANKS for _ in range(RANK + 1)]


def test_objects_travel(case: hpccomm.World) -> None:
    found: list[object] | None = [None] * SIZE if RANK == 0 else None
    dist.gather_object({"rank": RANK, "long": "x" * RANK * 50}, found, 0)
    assert found is None or found == [{"rank": rank, "long": "x" * rank * 50} for rank in RANKS]
    mine: list[object] = [None]
    dist.scatter_object_list(mine, [f"for {rank}" for rank in RANKS] if RANK == 0 else None, 0)
    assert mine == [f"for {RANK}"]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("count", (3, 0))
def test_receives_from_any_rank_tell_which(case: hpccomm.World, count: int) -> None:
    dist.barrier()  # no message of one count comes among those of the other
    if RANK:
        sends = [dist.isend(torch.full((count,), float(10 * tag + RANK)), 0, tag=tag) for tag in (5, 5, 0, 7)]
        for send in sends:
            send.wait()
        return
    tensor = torch.zeros(count)
    for tag in (0, 5):
        senders = []
        for _ in range(SIZE - 1):
            senders.append(dist.recv(tensor, tag=tag))
            assert tensor.tolist() == [10.0 * tag + senders[-1]] * count
        assert tag or sorted(senders) == list(range(1, SIZE))
    for rank in range(1, SIZE):
        dist.recv(tensor, rank, tag=7)
    senders += [dist.recv(tensor, tag=5) for _ in range(SIZE - 1)]
    assert sorted(senders) == sorted(2 * list(range(1, SIZE)))


@pytest.mark.mpi(min_size=2)
def test_receives_from_any_rank_get_messages_in_the_order_in_which_they_were_posted(case: hpccomm.World) -> None:
    dist.barrier()  # no message of this test comes among those of the one before
    for _ in range(10):
        if RANK == 1:
            for number in range(3):
                dist.send(torch.tensor([number]), 0)
        if RANK == 0:
            tensors = [torch.zeros(1, dtype=torch.int64) for _ in range(3)]
            for work in [dist.irecv(tensor) for tensor in tensors]:
                work.wait()
            assert [tensor.item() for tensor in tensors] == [0, 1, 2]
        dist.barrier()


def test_wrong_blocks_are_refused(case: hpccomm.World) -> None:
    with pytest.raises(UnsupportedError, match="all_to_all among"):
        dist.group.WORLD.alltoall([torch.zeros(1)] * (SIZE + 1), [torch.zeros(1)] * SIZE)
    with pytest.raises(UnsupportedError, match="rows"):
        dist.group.WORLD.alltoall_base(torch.zeros(SIZE + 1), torch.zeros(SIZE), [1] * SIZE, [])
    dist.barrier()


@pytest.mark.mpi(min_size=2)
def test_blocks_that_share_memory_with_each_other_are_refused(case: hpccomm.World) -> None:
    with pytest.raises(UnsupportedError, match="share memory"):
        dist.all_to_all_single(torch.zeros(1).expand(SIZE), torch.zeros(SIZE))
    dist.barrier()


def test_several_tensors_are_refused_before_the_first_is_reduced(case: hpccomm.World) -> None:
    first = torch.ones(3)
    with pytest.raises(UnsupportedError, match="share memory"):
        dist.group.WORLD.allreduce_coalesced([first, torch.ones(1).expand(4)])
    assert first.tolist() == [1.0] * 3


def test_several_tensors_are_gathered_one_after_the_other(case: hpccomm.World) -> None:
    sources = [integers(RANK, count, torch.float32) for count in (1, 4, 9)]
    outputs = [[torch.empty_like(source) for source in sources] for _ in RANKS]
    work = dist.group.WORLD.allgather_coalesced(outputs, sources)
    work.wait()
    for rank, gathered in enumerate(outputs):
        assert all(torch.equal(one, integers(rank, one.numel(), torch.float32)) for one in gathered)
