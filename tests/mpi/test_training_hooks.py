"""Hooks under DDP: 16-bit floats on the wire, and Adasum, against the same in float64 on one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from training import GRADIENT_CASES, SIZE, alone, assert_same, loss, network, train, whole
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import HpccommError, OptionError
from hpccomm.training import adasum, check_gradients, check_parameters, compress
from hpccomm.training.adaptive_sum import combine_all

pytestmark = [pytest.mark.mpi(min_size=2), pytest.mark.skipif(not GRADIENT_CASES, reason="2 to 4 ranks tell enough")]

RANK = COMM.rank
Gradients = list[torch.Tensor]


@pytest.fixture(scope="module", params=GRADIENT_CASES, ids=" ".join)
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def ddp(model: torch.nn.Module, hook: Callable, group: dist.ProcessGroup | None = None) -> DistributedDataParallel:
    made = DistributedDataParallel(model, bucket_cap_mb=0.0005, process_group=group)
    made.register_comm_hook(group, hook)
    return made


@pytest.mark.parametrize(
    ("dtype", "divide", "backend"),
    [(torch.float16, "before", None), (torch.bfloat16, "after", None), (torch.float16, "after", "gloo")],
    ids=str,
)
def test_training_in_16_bits(case: hpccomm.World, dtype: torch.dtype, divide: str, backend: str | None) -> None:
    group = dist.new_group(backend=backend) if backend else None
    model = ddp(network(), compress(dtype, divide=divide), group)
    found = train(model, lambda step: loss(model, RANK, step))
    assert_same(found, alone(network()), 3e-3 if dtype == torch.float16 else 2e-2)
    check_gradients(model)


@FEW_RANKS
def test_operations_begin_before_backward_ends(case: hpccomm.World) -> None:
    group, seen = dist.new_group(backend="hpccomm"), []
    model = ddp(network(), compress(torch.bfloat16), group)
    loss(model, RANK, 0).backward()  # after it, DDP cuts its buckets anew
    model.module[0].weight.register_hook(lambda gradient: seen.append(calls_of(group)))
    start = calls_of(group)
    loss(model, RANK, 0).backward()
    (begun,), total = [calls - start for calls in seen], calls_of(group) - start
    assert 4 < total - 3 <= begun < total  # left: the last bucket's two, and the gathering of the one before


@FEW_RANKS
@pytest.mark.parametrize("hook", ["compress", "adasum"])
def test_ranks_may_run_out_of_rows(case: hpccomm.World, hook: str) -> None:
    made = compress(torch.bfloat16) if hook == "compress" else adasum(case.intra_node, case.inter_node)
    model = ddp(network(), made)
    with model.join():
        train(model, lambda step: loss(model, RANK, step), steps=range(RANK + 1))
    check_parameters(model.module)
    if hook == "compress":
        twin = network()
        expected = train(
            twin, lambda step: sum(loss(twin, rank, step) for rank in range(step, SIZE)) / SIZE, steps=range(SIZE)
        )
        assert_same(whole(model.module.parameters()), expected, 2e-2)


class Given(torch.nn.Module):
    """Parameters whose gradients on this rank are given."""

    def __init__(self, gradients: Gradients) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.zeros_like(one) for one in gradients)

    def forward(self, gradients: Gradients) -> torch.Tensor:
        return sum((part * gradient).sum().real for part, gradient in zip(self.parts, gradients, strict=True))


def averaged(gradients: Gradients, hook: Callable, steps: int = 1) -> Gradients:
    """Give what DDP makes of this rank's gradients."""
    model = ddp(Given(gradients), hook)
    for _ in range(steps):
        model.zero_grad()
        model(gradients).backward()
    check_gradients(model)
    return [part.grad for part in model.module.parts]


@FEW_RANKS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_an_average_is_rounded_once_on_each_way(case: hpccomm.World, dtype: torch.dtype) -> None:
    inputs = [torch.randn(2, 41, generator=torch.Generator().manual_seed(rank)).to(dtype) for rank in range(SIZE)]
    (found,) = averaged([inputs[RANK]], compress(torch.bfloat16), steps=2)
    sent = [one.bfloat16().double() for one in inputs]
    expected = (sum(sent) / SIZE).bfloat16().to(dtype)
    near = torch.finfo(torch.bfloat16).eps * expected.abs()  # a sum in float32 may round to the neighbour
    assert ((found - expected).abs() <= near).all()
    assert (found == expected).float().mean() > 0.9


def test_where_to_divide_is_a_choice_of_range(case: hpccomm.World) -> None:
    large, small = 80000.0, 2.0**-24
    before, after = (
        averaged([torch.tensor([0.0 if RANK else large, small])], compress(torch.float16, divide=divide))[0].tolist()
        for divide in ("before", "after")
    )
    assert after == [float("inf"), small]
    assert before == [pytest.approx(large / SIZE, rel=1e-3), 0.0]


def test_no_sum_overflows(case: hpccomm.World) -> None:
    (found,) = averaged([torch.full((3,), 60000.0, dtype=torch.float16)], compress(torch.float16))
    assert found.tolist() == [60000.0] * 3


@FEW_RANKS
def test_an_operation_that_fails_is_an_exception_on_every_rank(case: hpccomm.World) -> None:
    probe = ddp(network(), compress(torch.bfloat16), dist.new_group(backend="hpccomm"))
    loss(probe, RANK, 0).backward()
    start = calls_of(probe.process_group)
    loss(probe, RANK, 0).backward()
    for call in (start + 1, calls_of(probe.process_group)):
        backend = hpccomm.Options(f"faulty(mpi4py, raise, rank=1, call={call})")
        model = ddp(network(), compress(torch.bfloat16), dist.new_group(backend="hpccomm", pg_options=backend))
        loss(model, RANK, 0).backward()
        with pytest.raises((HpccommError, RuntimeError), match=r"group|on purpose"):
            loss(model, RANK, 0).backward()
        COMM.Barrier()


def calls_of(group: dist.ProcessGroup) -> int:
    return int(group._get_sequence_number_for_group())


def test_a_hook_that_cannot_be_is_refused() -> None:
    with pytest.raises(OptionError, match="float32"):
        compress(torch.float32)
    with pytest.raises(OptionError, match="never"):
        compress(torch.float16, divide="never")


def reference(gradients: Gradients) -> torch.Tensor:
    """Combine in float64 by the recursive formula: halves at the largest power of two below the number."""
    if len(gradients) == 1:
        return gradients[0].double()
    half = 1 << ((len(gradients) - 1).bit_length() - 1)
    a, b = reference(gradients[:half]), reference(gradients[half:])
    dot, aa, bb = (float((x * y).sum()) for x, y in ((a, b), (a, a), (b, b)))
    return (1 - dot / (2 * aa) if aa else 1) * a + (1 - dot / (2 * bb) if bb else 1) * b


def gradients_of(rank: int, dtype: torch.dtype = torch.float32) -> Gradients:
    generator = torch.Generator().manual_seed(rank)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in ((3, 4), (5,), (40,))]


@FEW_RANKS
def test_complex_gradients_are_pairs_of_real_ones(case: hpccomm.World) -> None:
    inputs = [[torch.randn(7, 2, generator=torch.Generator().manual_seed(rank)) for rank in range(SIZE)]]
    inputs.append([one + 1 for one in inputs[0]])
    mine = [torch.view_as_complex(of[RANK]).conj().resolve_conj() for of in inputs]  # of x*g the gradient is conj(g)
    short = averaged(mine, compress(torch.bfloat16))
    combined = averaged(mine, adasum(case.intra_node, case.inter_node))
    for of, average, one in zip(inputs, short, combined, strict=True):
        nodes = [sum(of[rank].double() for rank in ranks) for ranks in case.topology.all_intra_node()]
        assert_same([torch.view_as_real(average).double()], [sum(of).double() / SIZE], 2e-2)
        assert_same([torch.view_as_real(one).double()], [reference(nodes)], 1e-5)


@pytest.mark.parametrize(("average_inside", "dtype"), [(False, torch.float32), (True, torch.bfloat16)], ids=str)
def test_adasum_is_the_formula_on_the_sums_of_nodes(
    case: hpccomm.World, average_inside: bool, dtype: torch.dtype
) -> None:
    found = averaged(gradients_of(RANK, dtype), adasum(case.intra_node, case.inter_node, average_inside=average_inside))
    for part, of in enumerate(found):
        inputs = [gradients_of(rank, dtype)[part].double() for rank in range(SIZE)]
        nodes = [sum(inputs[rank] for rank in ranks) for ranks in case.topology.all_intra_node()]
        if average_inside:
            nodes = [node / len(ranks) for node, ranks in zip(nodes, case.topology.all_intra_node(), strict=True)]
        expected = reference(nodes).to(dtype)
        assert_same([of], [expected], 1e-2 if dtype == torch.bfloat16 else 1e-5)


def across(mine: torch.Tensor, sizes: list[int] | None = None) -> torch.Tensor:
    """Combine one gradient of every rank, as if each were a node."""
    result = mine.clone()
    combine_all(result, dist.group.WORLD, sizes or [len(mine)])
    return result


def test_adasum_over_ranks_is_the_formula(case: hpccomm.World) -> None:
    inputs = [torch.randn(50, generator=torch.Generator().manual_seed(rank), dtype=torch.float64) for rank in range(4)]
    found = across(inputs[RANK], [20, 30])
    for part in (slice(0, 20), slice(20, 50)):
        assert_same([found[part]], [reference([one[part] for one in inputs[:SIZE]])], 1e-14)


def test_orthogonal_gradients_add_and_equal_ones_average(case: hpccomm.World) -> None:
    basis = torch.eye(6)[:, : 2 * SIZE]
    assert across(basis[RANK] * (RANK + 1)).tolist() == [rank + 1.0 for rank in range(SIZE)] + [0.0] * (
        basis.shape[1] - SIZE
    )
    same = torch.tensor([3.0, -1.0, 0.5])
    assert across(same).tolist() == same.tolist()
    assert across(same if RANK else torch.zeros(3)).tolist() == (same if SIZE > 1 else torch.zeros(3)).tolist()
    assert across(torch.zeros(3)).tolist() == [0.0] * 3


def test_ranks_of_a_pair_and_pairs_may_change_places(case: hpccomm.World) -> None:
    inputs = [
        torch.randn(9, generator=torch.Generator().manual_seed(rank), dtype=torch.float64) for rank in range(SIZE)
    ]
    places = {2: [1, 0], 3: [1, 0, 2], 4: [3, 2, 0, 1]}[SIZE]
    assert_same([across(inputs[places[RANK]])], [across(inputs[RANK])], 1e-14)
