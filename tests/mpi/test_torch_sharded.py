"""Models spread over ranks: FSDP2, HSDP, tensor parallel, both at once, pipelines, and their checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from training import (
    CASES,
    FEW,
    SIZE,
    STEPS,
    all_rows,
    alone,
    assert_same,
    error,
    loss,
    mesh,
    network,
    rows,
    sgd,
    train,
    whole,
)
from worlds import COMM, in_few_ranks, world

import hpccomm

pytestmark = [
    pytest.mark.mpi(min_size=2),
    pytest.mark.skipif(not CASES, reason="2 and 4 ranks tell enough"),
    in_few_ranks,
]

RANK = COMM.rank
HALF = SIZE // 2


@pytest.fixture(scope="module", params=CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def sharded(over: DeviceMesh, model: torch.nn.Sequential | None = None, **options: Any) -> torch.nn.Module:
    """Shard a network's layers, and what is left of it, over a mesh."""
    model = model or network()
    for layer in model[::2]:
        fully_shard(layer, mesh=over, **options)
    return fully_shard(model, mesh=over, **options)


def here(model: torch.nn.Module) -> Callable[[int], torch.Tensor]:
    return lambda step: loss(model, RANK, step)


def test_fsdp(case: hpccomm.World) -> None:
    model = sharded(mesh())
    assert_same(train(model, here(model)), alone(network()))


@FEW
def test_fsdp_that_keeps_parameters_and_skips_reductions(case: hpccomm.World) -> None:
    model = sharded(mesh(), reshard_after_forward=False)
    optimizer = sgd(model.parameters())
    for step in range(STEPS):
        for part in (0, 1):
            model.set_requires_gradient_sync(part == 1)
            loss(model, RANK, 2 * step + part).backward()
        optimizer.step()
        optimizer.zero_grad()
    expected = alone(network(), lambda one, rank, step: loss(one, rank, 2 * step) + loss(one, rank, 2 * step + 1))
    assert_same(whole(model.parameters()), expected)


@FEW
def test_fsdp_in_mixed_precision(case: hpccomm.World) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    meshes = [mesh(), mesh(group=dist.new_group(backend="gloo"))]
    models = [sharded(over, network().float(), mp_policy=policy) for over in meshes]
    found, expected = (train(model, lambda step, model=model: half_loss(model, step)) for model in models)
    assert_same(found, expected, 1e-5)


def half_loss(model: torch.nn.Module, step: int) -> torch.Tensor:
    inputs = rows(RANK, step).float()
    return error(model(inputs).float(), inputs)


@FEW
def test_fsdp_on_a_mesh_of_two_dimensions(case: hpccomm.World) -> None:
    model = sharded(mesh(2, HALF))
    assert_same(train(model, here(model)), alone(network()))


def split(model: torch.nn.Sequential, over: DeviceMesh) -> torch.nn.Sequential:
    """Cut the layers of a network in columns and rows by turns."""
    plan = {str(2 * at): RowwiseParallel() if at % 2 else ColwiseParallel() for at in range(len(model) // 2)}
    parallelize_module(model, over, plan)
    return model


@FEW
def test_tensor_parallel(case: hpccomm.World) -> None:
    model = split(network(), mesh())
    found = train(model, lambda step: error(model(all_rows(step)), all_rows(step)))
    assert_same(found, alone(network()))


@FEW
def test_tensor_parallel_and_fsdp(case: hpccomm.World) -> None:
    both = mesh(2, HALF)
    data, tensor = (both[name] for name in both.mesh_dim_names)
    model = sharded(data, split(network(), tensor))
    mine = range(HALF * data.get_local_rank(), HALF * (data.get_local_rank() + 1))
    found = train(model, lambda step: sum(loss(model, rank, step) for rank in mine) / HALF)
    assert_same(found, alone(network()))


SCHEDULES = {"GPipe": (ScheduleGPipe, 1), "1F1B": (Schedule1F1B, 1), "interleaved": (ScheduleInterleaved1F1B, 2)}


@FEW
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_pipeline(case: hpccomm.World, schedule: str) -> None:
    kind, each = SCHEDULES[schedule]
    count = each * SIZE
    layers = network(count)
    parts = {at: layers[2 * at : 2 * at + 2] for at in range(RANK, count, SIZE)}
    stages = [PipelineStage(part, at, count, torch.device("cpu")) for at, part in parts.items()]
    pipeline = kind(stages if each > 1 else stages[0], n_microbatches=SIZE, loss_fn=error)
    optimizer = sgd(parameter for part in parts.values() for parameter in part.parameters())
    for step in range(STEPS):
        optimizer.zero_grad()
        pipeline.step(*[all_rows(step)] if RANK == 0 else [], target=all_rows(step) if RANK == SIZE - 1 else None)
        optimizer.step()
    expected = alone(network(count))
    for at, part in parts.items():
        assert_same(whole(part.parameters()), expected[2 * at : 2 * at + 2])


def state_of(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    of_model, of_optimizer = get_state_dict(model, optimizer)
    return {"model": of_model, "optimizer": of_optimizer}


def load(folder: Path, over: DeviceMesh) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """Give a model and its optimiser as a checkpoint has them, spread over a mesh."""
    torch.manual_seed(1)
    model = sharded(over)
    optimizer = sgd(model.parameters())
    state = state_of(model, optimizer)
    dcp.load(state, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return model, optimizer


@pytest.mark.parametrize(("case", "apart"), zip(CASES[:2], (False, True), strict=False), indirect=["case"], ids=str)
def test_checkpoint(case: hpccomm.World, tmp_path: Path, apart: bool) -> None:
    folder = COMM.bcast(tmp_path)
    model = sharded(mesh())
    optimizer = sgd(model.parameters())
    saved = train(model, here(model), optimizer, steps=range(2))
    state = state_of(model, optimizer)
    if apart:
        dcp.async_save(state, checkpoint_id=folder).result()
    else:
        dcp.save(state, checkpoint_id=folder)
    expected = train(model, here(model), optimizer, steps=[2])
    same, its_optimizer = load(folder, mesh())
    assert_same(whole(same.parameters()), saved, 0)
    assert_same(train(same, here(same), its_optimizer, steps=[2]), expected, 0)
    other, its_optimizer = load(folder, mesh(2, HALF))
    assert_same(whole(other.parameters()), saved, 0)
    assert_same(train(other, here(other), its_optimizer, steps=[2]), expected)


@FEW
def test_whole_state_of_one_rank(case: hpccomm.World) -> None:
    trained, fresh = sharded(mesh()), sharded(mesh(2, HALF))
    expected = train(trained, here(trained))  # the fresh one is as untrained as this one was
    state = get_model_state_dict(trained, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    assert bool(state) is (RANK == 0)
    set_model_state_dict(fresh, state, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    assert_same(whole(fresh.parameters()), expected, 0)
