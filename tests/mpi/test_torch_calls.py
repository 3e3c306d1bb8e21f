"""Torch's less usual ways to communicate: functional collectives, autograd, compiled code, meshes, subgroups."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as differentiable
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from training import CASES, FEW, SIZE, mesh
from worlds import COMM, in_few_ranks, world

import hpccomm
from hpccomm.backends.bare import has_backend_class
from hpccomm.errors import BackendError

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(not CASES, reason="2 and 4 ranks tell enough"),
    in_few_ranks,
]

RANK = COMM.rank
TOTAL = float(sum(range(SIZE)))


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def mine(*shape: int) -> torch.Tensor:
    return torch.full(shape, float(RANK))


def test_functional_collectives(case: hpccomm.World) -> None:
    ranks = torch.arange(float(SIZE))
    group = case.group
    assert functional.all_reduce(mine(3), "sum", group).tolist() == [TOTAL] * 3
    assert functional.all_reduce(mine(3), "avg", group).tolist() == [TOTAL / SIZE] * 3
    assert functional.all_gather_tensor(mine(1), 0, group).tolist() == ranks.tolist()
    assert functional.reduce_scatter_tensor(ranks, "sum", 0, group).tolist() == [float(RANK * SIZE)]
    assert functional.broadcast(mine(2), SIZE - 1, group).tolist() == [SIZE - 1.0] * 2
    assert functional.all_to_all_single(mine(SIZE), None, None, group).tolist() == ranks.tolist()
    assert [t.tolist() for t in functional.all_reduce_coalesced([mine(1), mine(2)], "max", group)] == [
        [SIZE - 1.0],
        [SIZE - 1.0] * 2,
    ]
    gathered = functional.all_gather_into_tensor_coalesced([mine(1), mine(1)], group)
    assert [t.tolist() for t in gathered] == [ranks.tolist()] * 2
    scattered = functional.reduce_scatter_tensor_coalesced([ranks, ranks], "sum", [0, 0], group)
    assert [t.tolist() for t in scattered] == [[float(RANK * SIZE)]] * 2
    shifted = functional.permute_tensor(mine(2), [(rank + 1) % SIZE for rank in range(SIZE)], group)
    assert shifted.tolist() == [float((RANK - 1) % SIZE)] * 2


def test_functional_collectives_have_gradients(case: hpccomm.World) -> None:
    leaf = mine(2).requires_grad_()
    gathered = functional.all_gather_tensor_autograd(leaf, 0, case.group)
    (gathered * (RANK + 1)).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [TOTAL + SIZE] * 2


@pytest.mark.filterwarnings("ignore:.*deprecated:FutureWarning")
def test_differentiable_collectives(case: hpccomm.World) -> None:
    leaf = mine(3).requires_grad_()
    (differentiable.all_reduce(leaf) * (RANK + 1)).sum().backward()
    assert leaf.grad.tolist() == [TOTAL + SIZE] * 3
    leaf = mine(3).requires_grad_()
    (torch.stack(differentiable.all_gather(leaf)) * (RANK + 1)).sum().backward()
    assert leaf.grad.tolist() == [TOTAL + SIZE] * 3
    leaf = mine(2, SIZE).requires_grad_()
    blocks = differentiable.all_to_all([torch.empty(2) for _ in range(SIZE)], list(leaf.t().contiguous()))
    (torch.stack(blocks) * (RANK + 1)).sum().backward()
    assert leaf.grad.tolist() == [[rank + 1.0 for rank in range(SIZE)]] * 2


@FEW
@pytest.mark.skipif(SIZE > 2, reason="torch compiles the same for more ranks, which takes long")
def test_compiled_collective(case: hpccomm.World) -> None:
    def step(tensor: torch.Tensor) -> torch.Tensor:
        gathered = functional.all_gather_tensor(tensor * 2, 0, case.group)
        return functional.all_reduce(gathered.sin(), "sum", case.group) + 1

    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(mine(3)), step(mine(3)))
    torch._dynamo.reset()


def test_distributed_tensors(case: hpccomm.World) -> None:
    over = mesh()
    whole = torch.arange(2.0 * SIZE * SIZE).view(2 * SIZE, SIZE)
    by_rows = distribute_tensor(whole, over, [Shard(0)])
    by_columns = by_rows.redistribute(over, [Shard(1)])
    assert by_columns.to_local().equal(whole[:, RANK : RANK + 1])
    assert by_columns.redistribute(over, [Replicate()]).to_local().equal(whole)
    assert (by_rows @ by_columns.t().redistribute(over, [Replicate()])).full_tensor().equal(whole @ whole.t())
    assert isinstance(by_rows.sum(), DTensor)
    assert by_rows.sum().full_tensor() == whole.sum()


def total(group: dist.ProcessGroup | None = None) -> float:
    tensor = mine(3)
    dist.all_reduce(tensor, group=group)
    return float(tensor[0])


def test_subgroups(case: hpccomm.World) -> None:
    own, groups = dist.new_subgroups(SIZE // 2)
    assert len(groups) == 2
    assert total(own) == sum(rank for rank in range(SIZE) if rank // (SIZE // 2) == RANK // (SIZE // 2))
    own, _ = dist.new_subgroups_by_enumeration([list(range(0, SIZE, 2)), list(range(1, SIZE, 2))])
    assert total(own) == sum(range(RANK % 2, SIZE, 2))
    ends = dist.new_group([SIZE - 1, 0])
    if RANK in (0, SIZE - 1):
        assert total(ends) == SIZE - 1
    alone = [dist.new_group([rank]) for rank in range(SIZE)]
    assert total(alone[RANK]) == RANK


def test_coalesced_calls(case: hpccomm.World) -> None:
    tensors = [mine(2), mine(3)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    with dist._coalescing_manager(async_ops=True) as pending:
        for tensor in tensors:
            dist.all_reduce(tensor)
    pending.wait()
    assert [t.tolist() for t in tensors] == [[TOTAL * SIZE] * 2, [TOTAL * SIZE] * 3]
    gathered = [torch.empty(SIZE), torch.empty(SIZE)]
    with dist._coalescing_manager():
        for output in gathered:
            dist.all_gather_into_tensor(output, mine(1))
    assert [t.tolist() for t in gathered] == [list(map(float, range(SIZE)))] * 2


def test_objects(case: hpccomm.World) -> None:
    everybody: Any = [None] * SIZE if RANK == 0 else None
    dist.gather_object({"rank": RANK}, everybody, 0)
    assert everybody == ([{"rank": rank} for rank in range(SIZE)] if RANK == 0 else None)
    own: list[Any] = [None]
    dist.scatter_object_list(own, ["x" * rank for rank in range(SIZE)] if RANK == 0 else None, 0)
    assert own == ["x" * RANK]
    passed: list[Any] = [None]
    if RANK == 0:
        dist.send_object_list([("from", 0)], 1)
    elif RANK == 1:
        dist.recv_object_list(passed, 0)
        assert passed == [("from", 0)]


def test_two_threads_on_two_groups(case: hpccomm.World) -> None:
    sums: list[list[float]] = [[], []]
    groups = [dist.new_group(), dist.new_group()]
    threads = [
        threading.Thread(target=lambda which=which: sums[which].extend(total(groups[which]) for _ in range(50)))
        for which in (0, 1)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [[TOTAL] * 50] * 2


def test_one_backend_a_device(case: hpccomm.World) -> None:
    if not has_backend_class():
        with pytest.raises(BackendError, match="takes no Python backend beside others"):
            dist.new_group(backend="cpu:hpccomm,cuda:gloo")
        return
    group = dist.new_group(backend="cpu:hpccomm,cuda:gloo")
    assert total(group) == TOTAL
    assert functional.all_reduce(mine(3), "sum", group).tolist() == [TOTAL] * 3
