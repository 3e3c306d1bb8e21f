"""Algorithms over carriers: every dtype, whatever the carrier knows."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from worlds import COMM, by_this_mpi, world

import hpccomm
from hpccomm.errors import OptionError
from reference import has_meaning, integers, pairs, reduced

pytestmark = pytest.mark.mpi

RANKS, RANK = range(COMM.size), COMM.rank
BACKENDS = by_this_mpi(
    [
        "ring(mpi4py)",
        "tree(gloo)",
        "direct(mpi4py)",
        "direct(gloo, shots=2)",
        "halving_doubling(mpi4py)",
        "recursive_doubling(mpi4py)",
        "naive(mpi4py)",
        "van_de_geijn(mpi4py)",
        "hierarchical(direct(mpi4py), ring(gloo), by=2)",
        "ring(hierarchical(mpi4py, mpi4py, by=2))",
    ]
)
FIRST_OVER_A_CARRIER = ["ring(mpi4py)", "tree(gloo)", *BACKENDS[-2:]]


@pytest.fixture(scope="module", params=BACKENDS)
def case(request: pytest.FixtureRequest):
    with world("A" * COMM.size, request.param) as made:
        yield made


def test_reductions_equal_the_reference(case: hpccomm.World) -> None:
    for op, dtype in pairs(every=case.backend in FIRST_OVER_A_CARRIER):
        for count in (0, 1, 17) if dtype == torch.bfloat16 else (17,):
            if has_meaning(op, dtype):
                inputs = [integers(rank, count, dtype) for rank in RANKS]
                tensor = inputs[RANK].clone()
                options = dist.AllreduceOptions()
                options.reduceOp = op
                dist.group.WORLD.allreduce([tensor], options).wait()
                assert torch.equal(tensor, reduced(op, inputs).to(dtype)), (op, dtype, count)


def test_bits_are_equal_everywhere(case: hpccomm.World) -> None:
    tensor = torch.randn(1001, generator=torch.Generator().manual_seed(RANK))
    dist.all_reduce(tensor)
    assert all(torch.equal(tensor, other) for other in COMM.allgather(tensor))


@pytest.mark.parametrize("count", (0, 1, 7, 1000))
def test_the_other_collectives(case: hpccomm.World, count: int) -> None:
    for root in RANKS:
        tensor = integers(RANK, count, torch.bfloat16)
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, integers(root, count, torch.bfloat16))
    whole = torch.zeros(count * COMM.size, dtype=torch.bool)
    dist.all_gather_into_tensor(whole, integers(RANK, count, torch.bool))
    assert torch.equal(whole, torch.cat([integers(rank, count, torch.bool) for rank in RANKS]))
    inputs = [integers(rank, count * COMM.size, torch.int8) for rank in RANKS]
    block = torch.zeros(count, dtype=torch.int8)
    dist.reduce_scatter_tensor(block, inputs[RANK])
    assert torch.equal(block, reduced(ReduceOp.SUM, inputs).to(torch.int8)[RANK * count : (RANK + 1) * count])
    uneven = [torch.zeros(rank) for rank in RANKS]
    dist.group.WORLD.allgather([uneven], [torch.full((RANK,), float(RANK))]).wait()
    assert all(torch.equal(part, torch.full((rank,), float(rank))) for rank, part in enumerate(uneven))
    dist.barrier()


def test_tags_that_are_not_good_everywhere_are_refused(case: hpccomm.World) -> None:
    over, tensor = dist.group.WORLD, torch.ones(1)
    for tag in (-1, 32766, 32767, 2**31):
        with pytest.raises(OptionError, match=f"tag {tag}"):
            over.send([tensor], 0, tag)
        with pytest.raises(OptionError, match=f"tag {tag}"):
            over.recv([tensor], 0, tag)
        with pytest.raises(OptionError, match=f"tag {tag}"):
            over.recv_anysource([tensor], tag)
    dist.barrier()


@pytest.mark.mpi(min_size=2)
def test_the_largest_tag_is_good(case: hpccomm.World) -> None:
    received = torch.zeros(2)
    receiving = dist.irecv(received, (RANK - 1) % COMM.size, tag=32765)
    dist.send(torch.full((2,), float(RANK)), (RANK + 1) % COMM.size, tag=32765)
    assert receiving is not None
    receiving.wait()
    assert received.tolist() == [float((RANK - 1) % COMM.size)] * 2
