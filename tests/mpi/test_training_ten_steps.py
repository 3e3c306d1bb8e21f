"""Ten steps of every way to average gradients, in every precision: no step is off by more than the way's roundings.

At each step a rank computes the gradients of all ranks itself, from the parameters that all hold, and combines them in
float64. What may be added to that is known: two roundings where 16 bits travel, one to the parameters' dtype, and the
sums in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from training import SIZE, error, network, rows, sgd
from worlds import COMM, in_few_ranks, world

import hpccomm
from hpccomm.training import AgreedGradScaler, GradientBuckets, adasum, check_parameters, compress
from hpccomm.training.compression import Hook
from traces import sent, valid

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(SIZE != 4, reason="four ranks make two nodes of each kind"),
]

RANK, STEPS, SCALE = COMM.rank, 10, 2.0**8
PLACEMENTS = ["AABB", "AAAB"]
HIERARCHY, NARROW = "hierarchical(mpi4py, gloo)", "hierarchical(mpi4py, gloo, wire={})"
HALF = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}
"""The largest relative error of one rounding."""
SMALLEST = SIZE * 2.0**-24
"""What float16 may lose of a mean: half of its smallest number in each rank's part and in the mean, times the ranks."""

Gradients = list[torch.Tensor]


@dataclass(frozen=True)
class Precision:
    """The dtypes of the parameters and of autocast; None computes in that of the parameters."""

    parameters: torch.dtype = torch.float32
    autocast: torch.dtype | None = None

    @property
    def scaler(self) -> AgreedGradScaler:
        return AgreedGradScaler(init_scale=SCALE, enabled=self.autocast == torch.float16)


PRECISIONS = {
    "float32": Precision(),
    "bfloat16": Precision(torch.bfloat16),
    "float16 and a scaler": Precision(autocast=torch.float16),
}


@dataclass(frozen=True)
class Way:
    """How gradients are averaged: a DDP hook, DDP itself, or, with neither, buckets; and what travels at the least."""

    hook: Callable[[hpccomm.World], Hook] | None = None
    travels: str = "float32"
    ddp: bool = True
    backend: str = HIERARCHY


WAYS = {
    "DDP": Way(),
    "buckets": Way(ddp=False),
    "compress bfloat16": Way(lambda _: compress(torch.bfloat16), "bfloat16"),
    "compress float16 after": Way(lambda _: compress(torch.float16), "float16"),
    "compress float16 before": Way(lambda _: compress(torch.float16, divide="before"), "float16"),
    "adasum": Way(lambda world: adasum(world.intra_node, world.inter_node)),
    "wire bfloat16": Way(travels="bfloat16", backend=NARROW.format("bfloat16")),
    "wire float16, buckets": Way(travels="float16", ddp=False, backend=NARROW.format("float16")),
}


def loss(model: torch.nn.Module, rank: int, step: int, precision: Precision) -> torch.Tensor:
    inputs = rows(rank, step).to(precision.parameters)
    with torch.autocast("cpu", dtype=precision.autocast, enabled=precision.autocast is not None):
        return error(model(inputs).float(), inputs.float())


def alone(model: torch.nn.Module, step: int, precision: Precision, scale: float) -> list[Gradients]:
    """Give every rank's gradients, in float64."""
    parameters, every = list(model.parameters()), []
    for rank in range(SIZE):
        found = torch.autograd.grad(loss(model, rank, step, precision) * scale, parameters)
        every.append([gradient.double() for gradient in found])
    return every


def adaptive(nodes: Gradients) -> torch.Tensor:
    """Combine the sums of two nodes by Adasum's formula."""
    a, b = nodes
    dot = (a * b).sum()
    return (1 - dot / (2 * (a * a).sum())) * a + (1 - dot / (2 * (b * b).sum())) * b


@contextmanager
def averaging(
    way: Way, model: torch.nn.Module, made: hpccomm.World
) -> Iterator[tuple[torch.nn.Module, Callable[[], None]]]:
    """Give what to call forward, and what to do after backward."""
    if way.ddp:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.0005)
        if way.hook is not None:
            wrapped.register_comm_hook(None, way.hook(made))
        yield wrapped, lambda: None
    else:
        with GradientBuckets(model, bucket_mib=0.0005) as buckets:
            yield model, buckets.wait


@in_few_ranks
@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", WAYS)
def test_ten_steps_keep_within_the_roundings_of_their_way(placement: str, precision: str, name: str) -> None:
    way, kind, twin = WAYS[name], PRECISIONS[precision], network().to(PRECISIONS[precision].parameters)
    model, scaler = network().to(kind.parameters), kind.scaler
    optimizer, rounded = sgd(model.parameters()), False
    with world(placement, way.backend) as made, averaging(way, model, made) as (forward, averaged):
        nodes = made.topology.all_intra_node()
        for step in range(STEPS):
            twin.load_state_dict(model.state_dict())
            optimizer.zero_grad()
            scaler.scale(loss(forward, RANK, step, kind)).backward()
            averaged()
            every = alone(twin, step, kind, scaler.get_scale())
            for part, parameter in enumerate(model.parameters()):
                inputs = [gradients[part] for gradients in every]
                if name == "adasum":
                    expected = adaptive([sum(inputs[rank] for rank in ranks) for ranks in nodes])
                    most = 3 * sum(one.abs().max() for one in inputs)  # of the sums, times their shares
                else:
                    expected, most = sum(inputs) / SIZE, sum(one.abs() for one in inputs) / SIZE
                off = (parameter.grad.double() - expected).abs()
                assert (off <= bound(way.travels, kind.parameters) * most + SMALLEST * (way.travels == "float16")).all()
                rounded |= bool((off > bound("float32", kind.parameters) * most).any())
            scaler.step(optimizer)
            scaler.update()
        check_parameters(model)
        assert not scaler.is_enabled() or scaler.get_scale() == SCALE
    if kind.parameters == torch.float32:
        assert rounded == (way.travels != "float32"), "16 bits round, and nothing else does"


def bound(travels: str, parameters: torch.dtype) -> float:
    """Give the largest error, in parts of what is averaged in absolute values."""
    narrow = 2 * HALF[travels] * (1 + HALF[travels]) if travels != "float32" else 0.0
    own = HALF[str(parameters).removeprefix("torch.")]
    return narrow + own * (1 + narrow) + SIZE * 2.0**-23


COUNT = 1024
"""Elements of the gradient whose bytes are counted: whole shards for all ranks and nodes."""


def bytes_of_steps(placement: str, way: Way, steps: int) -> tuple[int, int]:
    """Give the bytes that backends have sent in so many steps: all, and those from node to node."""
    with TemporaryDirectory() as own, pytest.MonkeyPatch.context() as patch:
        folder = COMM.bcast(own)
        patch.setenv("HPCCOMM_TRACE", f"{folder}/")
        with world(placement, way.backend) as made:
            model = torch.nn.Linear(COUNT, 1, bias=False)
            with averaging(way, model, made) as (forward, averaged):
                for _ in range(steps):
                    forward(torch.ones(1, COUNT)).sum().backward()
                    averaged()
        COMM.Barrier()
        (path,) = Path(folder).iterdir()
        found = {pair: sum(many) for pair, many in sent(valid(path)).items()}
        COMM.Barrier()
    return sum(found.values()), sum(many for (a, b), many in found.items() if placement[a] != placement[b])


def step_bytes(placement: str, name: str) -> tuple[int, int]:
    """Give those of one step: what two more steps add, without what goes before."""
    few, many = (bytes_of_steps(placement, WAYS[name], steps) for steps in (2, 4))
    return (many[0] - few[0]) // 2, (many[1] - few[1]) // 2


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_narrow_messages_are_half_the_bytes_between_nodes(placement: str) -> None:
    plain, narrow = (step_bytes(placement, name) for name in ("DDP", "wire bfloat16"))
    across = 2 * 4 * COUNT  # both nodes send 2(k-1)/k of the gradient, k = 2
    assert plain[1] == across
    assert narrow[1] == across // 2
    assert plain[0] - narrow[0] == across // 2, "inside nodes it is the same"


def test_compressed_gradients_are_half_the_bytes_of_flat_ones() -> None:
    flat = "A" * SIZE
    plain, short = (
        (many[0] - few[0]) // 2
        for few, many in (
            [bytes_of_steps(flat, Way(WAYS[name].hook, backend="mpi4py"), steps) for steps in (2, 4)]
            for name in ("DDP", "compress bfloat16")
        )
    )
    assert plain == SIZE * 2 * (SIZE - 1) * 4 * COUNT // SIZE
    assert short == plain // 2
