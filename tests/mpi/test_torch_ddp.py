"""DDP and what trains data-parallel beside it: the parameters are those of one process that sees all rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from training import CASES, SIZE, STEPS, alone, assert_same, error, loss, network, rows, sgd, train, whole
from worlds import COMM, in_few_ranks, world

import hpccomm
from hpccomm.backends.bare import has_backend_class

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(not CASES, reason="2 and 4 ranks tell enough"),
    in_few_ranks,
]

RANK = COMM.rank


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def ddp(model: torch.nn.Module | None = None, **options: Any) -> DistributedDataParallel:
    return DistributedDataParallel(model or network(), bucket_cap_mb=0.001, **options)


def here(model: torch.nn.Module) -> Callable[[int], torch.Tensor]:
    """Give the losses of a model on this rank's rows."""
    return lambda step: loss(model, RANK, step)


@pytest.mark.parametrize("options", [{}, {"static_graph": True}, {"gradient_as_bucket_view": True}], ids=str)
def test_ddp(case: hpccomm.World, options: dict[str, Any]) -> None:
    model = ddp(**options)
    assert_same(train(model, here(model)), alone(network()))


class Branches(torch.nn.Module):
    """A network with a part that only the last rank uses, at odd steps, and one that nobody uses."""

    def __init__(self) -> None:
        super().__init__()
        self.common, self.sometimes, self.never = network(2), network(1), network(1)

    def forward(self, inputs: torch.Tensor, uses_more: bool) -> torch.Tensor:
        output = self.common(inputs)
        return output + self.sometimes(inputs) if uses_more else output


def branched(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    return error(model(rows(rank, step), rank == SIZE - 1 and step % 2 == 1), rows(rank, step))


def test_ddp_with_unused_parameters(case: hpccomm.World) -> None:
    model = ddp(Branches(), find_unused_parameters=True)
    found = train(model, lambda step: branched(model, RANK, step))
    assert_same(found, alone(Branches(), branched))


def test_ddp_that_accumulates(case: hpccomm.World) -> None:
    model = ddp()
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        with model.no_sync():
            loss(model, RANK, 2 * step).backward()
        loss(model, RANK, 2 * step + 1).backward()
        optimizer.step()
    expected = alone(network(), lambda one, rank, step: loss(one, rank, 2 * step) + loss(one, rank, 2 * step + 1))
    assert_same(whole(model.parameters()), expected)


def test_ddp_with_uneven_inputs(case: hpccomm.World) -> None:
    model = ddp()
    with model.join():
        train(model, here(model), steps=range(RANK + 1))
    twin = network()
    expected = train(
        twin, lambda step: sum(loss(twin, rank, step) for rank in range(step, SIZE)) / SIZE, steps=range(SIZE)
    )
    assert_same(whole(model.parameters()), expected)


HOOKS: dict[str, tuple[Callable[[DistributedDataParallel], None], float]] = {
    "all_reduce": (lambda model: model.register_comm_hook(None, default_hooks.allreduce_hook), 1e-10),
    "fp16": (lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook), 3e-3),
    "all_reduce in C++": (lambda model: model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE), 1e-10),
}


@pytest.mark.parametrize("hook", HOOKS)
def test_ddp_with_a_hook(case: hpccomm.World, hook: str) -> None:
    register, tolerance = HOOKS[hook]
    model = ddp()
    register(model)
    assert_same(train(model, here(model)), alone(network()), tolerance)


@pytest.mark.parametrize("as_views", [False, True])
def test_zero_redundancy_optimizer(case: hpccomm.World, as_views: bool) -> None:
    model = ddp()
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, parameters_as_bucket_view=as_views, lr=0.01
    )
    twin = network()
    expected = alone(twin, optimizer=torch.optim.AdamW(twin.parameters(), lr=0.01))
    assert_same(train(model, here(model), optimizer), expected)


def test_ddp_that_torch_watches_closely(case: hpccomm.World, monkeypatch: pytest.MonkeyPatch) -> None:
    before = dist.get_debug_level()
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL")
    dist.set_debug_level_from_env()
    try:
        model = ddp(process_group=dist.new_group(backend="hpccomm"))
        assert_same(train(model, here(model)), alone(network()))
        if has_backend_class():
            tensor = torch.ones(3)
            dist.all_reduce(tensor, group=dist.new_group(backend="cpu:hpccomm,cuda:gloo"))
            assert tensor.tolist() == [float(SIZE)] * 3
    finally:
        dist.set_debug_level(before)


def test_torch_itself_refuses_batch_norm_across_ranks_on_cpus(case: hpccomm.World) -> None:
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torch.nn.Sequential(torch.nn.BatchNorm1d(8)))
    with pytest.raises(ValueError, match="SyncBatchNorm layers only work with GPU modules"):
        ddp(model)


def test_sampler_and_loader_give_every_row_once(case: hpccomm.World) -> None:
    data = TensorDataset(torch.arange(4 * SIZE))
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, seed=1))
    seen = torch.cat([batch for (batch,) in loader])
    gathered = torch.empty(4 * SIZE, dtype=seen.dtype)
    dist.all_gather_into_tensor(gathered, seen)
    assert gathered.sort().values.tolist() == list(range(4 * SIZE))
