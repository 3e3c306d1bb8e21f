"""Steps of several passes are those of one large batch, and all ranks skip a step or none does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from training import GRADIENT_CASES, SIZE, assert_same, error, network, sgd, whole
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import OptionError
from hpccomm.training import AgreedGradScaler, GradientBuckets, accumulate, check_gradients

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

RANK = COMM.rank
PASSES = 3
SIZES = [4, 1, 3, 2, 5]  # rows of each batch; two are left over for a second step


@pytest.fixture(scope="module", params=GRADIENT_CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def batches(rank: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(size, 8, dtype=torch.float64, generator=generator) for size in SIZES]


def large_batches() -> list[torch.Tensor]:
    """Give the rows of each step, of all ranks and passes."""
    every = [batches(rank) for rank in range(SIZE)]
    return [torch.cat([batch for one in every for batch in one[at : at + PASSES]]) for at in (0, PASSES)]


def expected() -> list[torch.Tensor]:
    model = network()
    optimizer = sgd(model.parameters())
    for rows in large_batches():
        optimizer.zero_grad()
        error(model(rows), rows).backward()
        optimizer.step()
    return whole(model.parameters())


def accumulated(model: torch.nn.Module, synchronizes: object, wait: Callable[[], None]) -> list[torch.Tensor]:
    optimizer = sgd(model.parameters())
    for rows, micro in accumulate(synchronizes, batches(RANK), passes=PASSES, rows=len):
        with micro.context():
            (error(model(rows), rows) * micro.weight).backward()
        if micro.last:
            wait()
            check_gradients(model)
            optimizer.step()
            optimizer.zero_grad()
    return whole(model.parameters())


def test_passes_under_ddp_are_one_large_batch(case: hpccomm.World) -> None:
    calls = []

    def counted(state, bucket):
        calls.append(bucket.index())
        return default_hooks.allreduce_hook(state, bucket)

    model = DistributedDataParallel(network(), bucket_cap_mb=1)
    model.register_comm_hook(None, counted)
    assert_same(accumulated(model, model, lambda: None), expected())
    assert calls == [0, 0]  # one bucket, once a step


def test_passes_in_buckets_are_one_large_batch(case: hpccomm.World) -> None:
    model = network()
    with GradientBuckets(model, bucket_mib=0.0005) as buckets:
        assert_same(accumulated(model, buckets, buckets.wait), expected())


def test_passes_are_counted_and_weighed() -> None:
    given = [(micro.last, micro.weight) for _, micro in accumulate(network(), range(3), passes=2)]
    assert given == [(False, 0.5), (True, 0.5), (True, 1.0)]
    assert list(accumulate(network(), [], passes=2)) == []
    with pytest.raises(OptionError, match="0 passes"):
        accumulate(network(), [], passes=0)


@pytest.mark.parametrize("fused", [False, True])
def test_a_rank_without_rows_agrees_from_the_first_step_on(case: hpccomm.World, fused: bool) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0, fused=fused)
    scaler = AgreedGradScaler(init_scale=8.0)
    if RANK:
        scaler.scale(parameter.sum() * (float("inf") if RANK == 1 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert (parameter.item(), scaler.get_scale()) == (1.0, 4.0)


@pytest.mark.parametrize(("bad", "fused"), [(float("inf"), False), (float("nan"), True)])
def test_all_ranks_skip_a_step_together(case: hpccomm.World, bad: float, fused: bool) -> None:
    """Each rank steps by gradients of its own, as with a sharded optimiser; one of them overflows."""
    parameter = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([parameter], lr=1.0, fused=fused)
    scaler = AgreedGradScaler(init_scale=8.0)
    for step in range(2):
        overflows = step == 0 and RANK == SIZE - 1
        optimizer.zero_grad()
        scaler.scale((parameter * torch.tensor([1.0, 2.0, bad if overflows else 3.0])).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert parameter.tolist() == ([1.0] * 3 if step == 0 else [0.0, -1.0, -2.0])
        assert scaler.get_scale() == 4.0


def test_a_rank_without_gradients_agrees_too(case: hpccomm.World) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = AgreedGradScaler(init_scale=8.0)
    scaled = scaler.scale(parameter.sum() * (float("inf") if RANK == 1 else 1.0))
    if RANK:
        scaled.backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    assert (parameter.item(), scaler.get_scale()) == (1.0, 4.0)


def test_a_scaler_that_is_off_says_nothing(case: hpccomm.World) -> None:
    parameter = torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = AgreedGradScaler(enabled=False)
    if RANK == 0:
        scaler.scale(parameter.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    assert parameter.item() == float(RANK > 0)
