"""Gradients averaged in buckets: those of one process that sees all rows, in one order on all ranks, or one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
import torch.distributed as dist
from training import GRADIENT_CASES, SIZE, STEPS, alone, assert_same, error, loss, network, rows, sgd, whole
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import HpccommError, OptionError, TrainingError, UnsupportedError
from hpccomm.training import GradientBuckets, check_gradients

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.skipif(not GRADIENT_CASES, reason="2 to 4 ranks tell enough")]

RANK = COMM.rank


@pytest.fixture(scope="module", params=GRADIENT_CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def bucketed(model: torch.nn.Module, **options: Any) -> GradientBuckets:
    return GradientBuckets(model, **({"bucket_mib": 0.0005} | options))


def trained(model: torch.nn.Module, buckets: GradientBuckets, losses: Any) -> list[torch.Tensor]:
    """Train with a `wait` before every step."""
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        losses(step).backward()
        buckets.wait()
        optimizer.step()
    return whole(model.parameters())


@pytest.mark.parametrize("backend", [None, "gloo"])
def test_steps_are_those_of_one_process(case: hpccomm.World, backend: str | None) -> None:
    group = dist.new_group(backend=backend) if backend else None
    model = network()
    with bucketed(model, group=group) as buckets:
        assert buckets.count > 2
        assert_same(trained(model, buckets, lambda step: loss(model, RANK, step)), alone(network()))


class Fork(torch.nn.Module):
    """Layers side by side, of which each rank uses some, in an order of its own."""

    def __init__(self, branches: int) -> None:
        super().__init__()
        self.branches = torch.nn.ModuleList(network(1) for _ in range(branches))

    def forward(self, inputs: torch.Tensor, order: list[int]) -> torch.Tensor:
        return sum(self.branches[branch](inputs) for branch in order)


def forked(model: torch.nn.Module, rank: int, step: int) -> torch.Tensor:
    """Give the loss on a rank's rows; it leaves out a branch of its own, and all ranks leave out the last."""
    order = [(rank + one) % 4 for one in range(3)]
    return error(model(rows(rank, step), order if rank % 2 else order[::-1]), rows(rank, step))


def test_ranks_may_use_other_layers_in_another_order(case: hpccomm.World) -> None:
    model, twin = Fork(5), Fork(5)
    with bucketed(model) as buckets:
        assert_same(trained(model, buckets, lambda step: forked(model, RANK, step)), alone(twin, forked))
        check_gradients(model)
    assert all(parameter.grad is None for parameter in model.branches[4].parameters())
    assert all(parameter.grad is not None for parameter in model.branches[:4].parameters())


def test_a_rank_without_rows_counts_as_zeros(case: hpccomm.World) -> None:
    model, twin = network(), network()
    with bucketed(model) as buckets:
        if RANK:
            loss(model, RANK, 0).backward()
        buckets.wait()
    (sum(loss(twin, rank, 0) for rank in range(1, SIZE)) / SIZE).backward()
    assert_same(*([parameter.grad for parameter in one.parameters()] for one in (model, twin)))


@FEW_RANKS
def test_most_operations_begin_before_backward_ends(case: hpccomm.World) -> None:
    model, seen = network(), []
    model[0].weight.register_hook(lambda gradient: seen.append(buckets.begun))
    with bucketed(model) as buckets:
        loss(model, RANK, 0).backward()
        assert seen == [buckets.count - 1]
        assert buckets.begun == buckets.count
        buckets.wait()
        assert buckets.begun == 0


@FEW_RANKS
def test_gradients_add_up_without_a_word(case: hpccomm.World) -> None:
    model, twin = network(), network()
    with bucketed(model) as buckets:
        with buckets.no_sync():
            loss(model, RANK, 0).backward()
            loss(model, RANK, 1).backward()
            assert buckets.begun == 0
        loss(model, RANK, 2).backward()
        buckets.wait()
    (sum(loss(twin, rank, step) for rank in range(SIZE) for step in range(3)) / SIZE).backward()
    assert_same(*([parameter.grad for parameter in one.parameters()] for one in (model, twin)))


DTYPES = (torch.float64, torch.bfloat16, torch.float32, torch.float16, torch.complex64)


def test_dtypes_may_be_mixed(case: hpccomm.World) -> None:
    model = torch.nn.ParameterList(torch.ones(5, dtype=DTYPES[one % 5]) for one in range(10))
    inputs = [torch.arange(5) + one for one in range(10)]
    with bucketed(model) as buckets:
        assert buckets.count == len(DTYPES)
        pairs = list(zip(model, inputs, strict=True))
        sum((parameter * (RANK + 1) * one).sum().real.double() for parameter, one in pairs).backward()
        buckets.wait()
    for parameter, one in pairs:
        expected = (one * sum(range(1, SIZE + 1)) / SIZE).to(parameter.dtype)
        assert_same([parameter.grad], [expected], 1e-6 if parameter.dtype.itemsize > 2 else 1e-2)


@FEW_RANKS
def test_a_frozen_parameter_keeps_none(case: hpccomm.World) -> None:
    model = network()
    model[0].requires_grad_(False)
    with bucketed(model) as buckets:
        loss(model, RANK, 0).backward()
        buckets.wait()
    assert model[0].weight.grad is None
    check_gradients(model)


@FEW_RANKS
def test_a_backward_too_many_is_refused(case: hpccomm.World) -> None:
    model = network()
    with bucketed(model) as buckets:
        loss(model, RANK, 0).backward()
        with pytest.raises(TrainingError, match=r"the gradient of \S+ came twice"):
            loss(model, RANK, 1).backward()
        buckets.wait()
        loss(model, RANK, 1).backward()
        buckets.wait()


@FEW_RANKS
def test_a_backward_that_the_average_would_lose_is_refused(case: hpccomm.World) -> None:
    model = network()
    with bucketed(model) as buckets:
        loss(model, RANK, 0).backward()
        with buckets.no_sync(), pytest.raises(TrainingError, match=r"the gradient of \S+ came twice"):
            loss(model, RANK, 1).backward()
        buckets.wait()


@FEW_RANKS
def test_a_parameter_that_is_unfrozen_later_is_refused(case: hpccomm.World) -> None:
    model, twin = network(), network()
    model[0].requires_grad_(False)
    with bucketed(model) as buckets:
        model[0].requires_grad_(True)
        for one in (model, twin):
            loss(one, RANK, 0).backward()
        with pytest.raises(TrainingError, match=r"0\.weight needs a gradient, but did not"):
            buckets.wait()
        assert_same(*([parameter.grad for parameter in one.parameters()] for one in (model, twin)), tolerance=0)


@FEW_RANKS
def test_after_close_nothing_is_averaged(case: hpccomm.World) -> None:
    model, twin = network(), network()
    buckets = bucketed(model)
    loss(model, RANK, 0).backward()
    buckets.close()
    model.zero_grad()
    loss(model, RANK, 0).backward()
    loss(twin, RANK, 0).backward()
    assert buckets.begun == 0
    assert_same(*([parameter.grad for parameter in one.parameters()] for one in (model, twin)), tolerance=0)


def with_a_fault(kind: str) -> tuple[torch.nn.Module, GradientBuckets]:
    """Give a model whose second bucket fails on rank 1; the group's first operation found the modules alike."""
    options = hpccomm.Options(f"faulty(mpi4py, {kind}, rank=1, call=3)")
    model = network()
    return model, bucketed(model, group=dist.new_group(backend="hpccomm", pg_options=options))


@FEW_RANKS
def test_the_failure_of_an_operation_is_raised_by_wait_on_every_rank(case: hpccomm.World) -> None:
    twin = network()
    model, buckets = with_a_fault("raise")
    for one in (model, twin):
        loss(one, RANK, 0).backward()
    with pytest.raises((HpccommError, RuntimeError), match=r"group|on purpose"):
        buckets.wait()
    assert_same(*([parameter.grad for parameter in one.parameters()] for one in (model, twin)), tolerance=0)
    assert buckets.begun == 0
    COMM.Barrier()


@FEW_RANKS
def test_a_failure_after_the_others_have_ended_is_raised_by_their_next_wait(case: hpccomm.World) -> None:
    model, buckets = with_a_fault("raise(at=after)")
    failed = []
    for _ in range(2):
        loss(model, RANK, 0).backward()
        try:
            buckets.wait()
            failed.append(False)
        except HpccommError:
            failed.append(True)
        COMM.Barrier()
    assert failed[1]
    assert failed[0] or RANK != 1


@FEW_RANKS
@pytest.mark.parametrize("ranks", [range(SIZE), [1]], ids=str)
def test_a_sparse_gradient_of_any_rank_is_refused_on_all(case: hpccomm.World, ranks: Sequence[int]) -> None:
    model = torch.nn.ModuleList([torch.nn.Embedding(4, 2, sparse=True), torch.nn.Linear(2, 2)]).double()
    with GradientBuckets(model, bucket_mib=1e-6) as buckets:
        for sparse in (True, False):
            model.zero_grad()
            rows = model[0](torch.tensor([RANK])) if sparse and RANK in ranks else torch.full((1, 2), RANK).double()
            model[1](rows).sum().backward()
            if sparse:
                with pytest.raises(UnsupportedError, match=r"the gradient of 0\.weight is sparse"):
                    buckets.wait()
            else:
                buckets.wait()
    assert_same([model[1].weight.grad], [torch.full((2, 2), (SIZE - 1) / 2).double()])


@FEW_RANKS
def test_what_cannot_be_is_refused_on_all_ranks(case: hpccomm.World) -> None:
    with pytest.raises(TrainingError, match=r"differ: (rank|ranks) \S+, rank 0|differ: rank 0, rank 1"):
        bucketed(torch.nn.Linear(3, 3, bias=RANK > 0))
    with pytest.raises(OptionError, match="not above 0"):
        GradientBuckets(network(), bucket_mib=0)
