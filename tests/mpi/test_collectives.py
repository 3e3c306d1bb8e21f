"""Every collective on every backend: operators, dtypes, layouts, sizes, node patterns.

What is only another value to reduce or to move is a loop in a test, not a test of its own: pytest takes longer to
start a test on all ranks than they take for a call, and the first failure ends the job either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from worlds import CASES, COMM, is_bare_nccl, is_first, world

import hpccomm
from hpccomm.errors import OptionError, UnsupportedError
from reference import BITWISE, DTYPES, FLOATS, INTEGERS, Op, bound, has_meaning, integers, pairs, reals, reduced
from views import layouts

pytestmark = pytest.mark.mpi

RANKS, RANK = range(COMM.size), COMM.rank
COUNTS = (0, 1, 2, 3, 4, 5, 8, 13, 1000)
SHAPES = [(torch.float32, count) for count in COUNTS] + [(dtype, 13) for dtype in DTYPES]
"""Dtype and count of what is moved: every count of one dtype and every dtype of one count; fuzzing mixes them."""


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[1]} on {case[0]}".replace(" ", ""))
def case(request: pytest.FixtureRequest) -> Iterator[hpccomm.World]:
    with world(*request.param) as made:
        yield made


def everywhere(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Collect a tensor of every rank, past the backend under test."""
    return COMM.allgather(tensor.cpu())


def assert_same_bits(tensor: torch.Tensor) -> None:
    for other in everywhere(tensor):
        assert torch.equal(
            other.contiguous().view(-1).view(torch.uint8), tensor.cpu().contiguous().view(-1).view(torch.uint8)
        )


def test_all_reduce_is_exact_for_integers(case: hpccomm.World) -> None:
    for op, dtype in pairs(every=is_first(case)):
        inputs = [integers(rank, 13, dtype) for rank in RANKS]
        tensor = inputs[RANK].clone()
        is_lacking = is_bare_nccl(case) and op in BITWISE and (dtype != torch.bool or op == ReduceOp.BXOR)
        if is_lacking or not has_meaning(op, dtype):
            with pytest.raises(UnsupportedError):
                dist.group.WORLD.allreduce([tensor], _options(op))
        else:
            dist.group.WORLD.allreduce([tensor], _options(op)).wait()
            assert torch.equal(tensor, reduced(op, inputs).to(dtype)), (op, dtype)


def _options(op: Op) -> dist.AllreduceOptions:
    """Ask past torch's own checks."""
    options = dist.AllreduceOptions()
    options.reduceOp = op
    return options


def test_integer_sums_wrap(case: hpccomm.World) -> None:
    """Vector kernels of some libraries saturate instead, from some number of elements on."""
    for dtype, count in itertools.product(INTEGERS, (1, 8, 33, 100)):
        largest, least = torch.iinfo(dtype).max, torch.iinfo(dtype).min
        tensor = torch.full((count,), largest, dtype=dtype)
        dist.all_reduce(tensor)
        wrapped = (largest * COMM.size - least) % 2 ** torch.iinfo(dtype).bits + least
        assert set(tensor.tolist()) == {wrapped}, (dtype, count)


@pytest.mark.parametrize("requires_grad", (False, True))
def test_a_parameter_may_be_reduced(case: hpccomm.World, requires_grad: bool) -> None:
    tensor = torch.full((5,), float(RANK), requires_grad=requires_grad)
    dist.all_reduce(tensor)
    dist.broadcast(tensor, 0)
    assert tensor.tolist() == [float(sum(RANKS))] * 5
    assert tensor.requires_grad == requires_grad


def test_float_sums_are_within_bound_and_equal_everywhere(case: hpccomm.World) -> None:
    for dtype, count in itertools.product(FLOATS, COUNTS):
        inputs = [reals(rank, count, dtype) for rank in RANKS]
        tensor = inputs[RANK].clone()
        dist.all_reduce(tensor)
        error = (tensor.double() - reduced(ReduceOp.SUM, inputs)).abs()
        assert (error <= bound(inputs)).all(), (dtype, count)
        assert_same_bits(tensor)


def test_half_average_does_not_overflow_on_the_way(case: hpccomm.World) -> None:
    tensor = torch.full((5,), torch.finfo(torch.float16).max, dtype=torch.float16)
    dist.all_reduce(tensor, ReduceOp.AVG)
    assert (tensor == torch.finfo(torch.float16).max).all()


def test_half_sums_are_rounded_once_above_the_leaves(case: hpccomm.World) -> None:
    if case.backend in ("gloo", "nccl", "nccl_cupy"):
        pytest.skip("it adds 16-bit floats itself, rounding at every hop")
    tensor = torch.tensor([256.0 if RANK == 0 else 1.0], dtype=torch.bfloat16)
    dist.all_reduce(tensor)
    assert tensor.item() == torch.tensor(256.0 + COMM.size - 1).bfloat16().item()


def test_unsigned_64_bits_are_ordered_as_unsigned(case: hpccomm.World) -> None:
    values = [torch.tensor([2**64 - 1 - rank, rank], dtype=torch.uint64) for rank in RANKS]
    for op, expected in ((ReduceOp.MAX, [2**64 - 1, COMM.size - 1]), (ReduceOp.MIN, [2**64 - COMM.size, 0])):
        tensor = values[RANK].clone()
        dist.all_reduce(tensor, op)
        assert tensor.tolist() == expected


@pytest.mark.parametrize("op", (ReduceOp.MIN, ReduceOp.MAX), ids=lambda op: op.name)
def test_a_nan_on_any_rank_is_the_least_and_the_greatest_everywhere(case: hpccomm.World, op: Op) -> None:
    for dtype, holder in itertools.product(FLOATS, RANKS):
        values = [
            [float("nan") if rank == holder else 1.0, float(rank), -float(rank), -0.0 if rank else 0.0]
            for rank in RANKS
        ]
        tensor = torch.tensor(values[RANK]).repeat(9).to(dtype)
        dist.group.WORLD.allreduce([tensor], _options(op)).wait()
        found = tensor.double().view(9, 4)
        assert found[:, 0].isnan().all(), dtype
        last, zero = COMM.size - 1, -0.0 if op == ReduceOp.MIN and COMM.size > 1 else 0.0
        expected = [0.0, -float(last), zero] if op == ReduceOp.MIN else [float(last), 0.0, zero]
        assert (found[:, 1:] == torch.tensor(expected)).all(), dtype
        assert (found[:, 3].signbit() == torch.tensor(zero).signbit()).all(), dtype
        assert_same_bits(tensor)


def test_premultiplied_sum(case: hpccomm.World) -> None:
    for dtype in FLOATS:
        tensor = integers(RANK, 9, dtype)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
        assert torch.equal(tensor, reduced(ReduceOp.SUM, [integers(rank, 9, dtype) * 0.5 for rank in RANKS]).to(dtype))


def test_layouts_keep_their_neighbours(case: hpccomm.World) -> None:
    sent = [integers(rank, 6, torch.float32) for rank in RANKS]
    total = reduced(ReduceOp.SUM, sent).float()
    for name, base, view in layouts(sent[RANK]):
        outside = base.numel() - 6
        dist.all_reduce(view)
        assert torch.equal(view.reshape(-1), total), name
        assert (base == -7).sum() == outside, name
    for name, base, view in layouts(sent[RANK]):
        dist.broadcast(view, COMM.size - 1)
        assert torch.equal(view.reshape(-1), sent[-1]), name
        assert (base == -7).sum() == base.numel() - 6, name


def test_transposed_on_one_rank_only(case: hpccomm.World) -> None:
    values = torch.arange(6.0).view(2, 3) * (RANK + 1)
    tensor = values.t().contiguous().t() if RANK == 0 else values.clone()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(6.0).view(2, 3) * sum(rank + 1 for rank in RANKS))


def test_a_column_of_one_row(case: hpccomm.World) -> None:
    """A dimension of size 1 may have any stride in a dense tensor."""
    base = torch.full((1, 3), RANK)
    dist.broadcast(base[:, 1], COMM.size - 1)
    assert base.tolist() == [[RANK, COMM.size - 1, RANK]]
    whole = torch.zeros(COMM.size, dtype=torch.int64)
    dist.all_gather_into_tensor(whole, base[:, 0])
    assert whole.tolist() == list(RANKS)


def test_zero_dimensions_gradients_and_lazy_views(case: hpccomm.World) -> None:
    scalar = torch.tensor(float(RANK))
    dist.all_reduce(scalar)
    assert scalar.item() == sum(RANKS)
    parameter = torch.nn.Parameter(torch.ones(3))
    with torch.no_grad():
        dist.all_reduce(parameter)
    assert torch.equal(parameter.data, torch.full((3,), float(COMM.size)))
    conjugated = torch.full((2,), 1 + 2j, dtype=torch.complex64).conj()
    dist.group.WORLD.allreduce([conjugated]).wait()  # torch.distributed.all_reduce itself refuses conjugate views
    assert torch.equal(conjugated.resolve_conj(), torch.full((2,), COMM.size * (1 - 2j), dtype=torch.complex64))
    negated = torch.full((2,), 1 + 2j, dtype=torch.complex64).conj().imag
    assert negated.is_neg()
    dist.all_reduce(negated)
    assert torch.equal(negated.resolve_neg(), torch.full((2,), -2.0 * COMM.size))


def test_expanded_outputs_are_refused(case: hpccomm.World) -> None:
    with pytest.raises(UnsupportedError, match="share memory"):
        dist.all_reduce(torch.ones(1).expand(4))
    with pytest.raises(UnsupportedError, match="share memory"):
        dist.broadcast(torch.ones(1, 3).expand(2, 3), 0)


def test_broadcast_from_every_root(case: hpccomm.World) -> None:
    for root, (dtype, count) in itertools.product(RANKS, SHAPES):
        tensor = integers(RANK, count, dtype)
        dist.broadcast(tensor, root)
        assert torch.equal(tensor, integers(root, count, dtype)), (root, dtype, count)


def test_all_gather(case: hpccomm.World) -> None:
    for dtype, count in SHAPES:
        expected = [integers(rank, count, dtype) for rank in RANKS]
        blocks = [torch.zeros(count, dtype=dtype) for _ in RANKS]
        dist.all_gather(blocks, expected[RANK].clone())
        assert all(map(torch.equal, blocks, expected))
        whole = torch.zeros(count * COMM.size, dtype=dtype)
        dist.all_gather_into_tensor(whole, expected[RANK].clone())
        assert torch.equal(whole, torch.cat(expected))


def test_all_gather_in_place_and_uneven(case: hpccomm.World) -> None:
    whole = torch.full((COMM.size * 3,), -1.0)
    whole[RANK * 3 : RANK * 3 + 3] = RANK
    dist.all_gather_into_tensor(whole, whole[RANK * 3 : RANK * 3 + 3])
    assert torch.equal(whole, torch.arange(float(COMM.size)).repeat_interleave(3))
    blocks = [torch.zeros(rank * 2) for rank in RANKS]
    dist.group.WORLD.allgather([blocks], [torch.full((RANK * 2,), float(RANK))]).wait()
    assert all(torch.equal(block, torch.full((rank * 2,), float(rank))) for rank, block in enumerate(blocks))


def test_reduce_scatter(case: hpccomm.World) -> None:
    for dtype, count in SHAPES:
        ops = (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.AVG) if count == 13 else (ReduceOp.SUM,)
        for op in (op for op in ops if has_meaning(op, dtype)):
            inputs = [integers(rank, count * COMM.size, dtype) for rank in RANKS]
            expected = reduced(op, inputs).to(dtype)[RANK * count : (RANK + 1) * count]
            kept = inputs[RANK].clone()
            output = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter_tensor(output, kept, op)
            assert torch.equal(output, expected)
            assert torch.equal(kept, inputs[RANK])
            output = torch.zeros(count, dtype=dtype)
            dist.reduce_scatter(output, list(kept.split(count)) if count else [output] * COMM.size, op)
            assert torch.equal(output, expected)


def test_reduce_scatter_into_its_own_input_and_uneven(case: hpccomm.World) -> None:
    source = torch.arange(COMM.size * 3.0)
    output = source[RANK * 3 : RANK * 3 + 3]
    dist.reduce_scatter_tensor(output, source)
    assert torch.equal(output, COMM.size * torch.arange(RANK * 3.0, RANK * 3 + 3))
    blocks = [torch.full((rank + 1,), float(RANK)) for rank in RANKS]
    output = torch.zeros(RANK + 1)
    dist.group.WORLD.reduce_scatter([output], [blocks]).wait()
    assert torch.equal(output, torch.full((RANK + 1,), float(sum(RANKS))))


def test_send_and_receive_between_all_pairs(case: hpccomm.World) -> None:
    for source, dest in itertools.permutations(RANKS, 2):
        for dtype, count in ((torch.float32, 5), (torch.bfloat16, 100_000), (torch.bool, 1)):
            sent, tag = integers(source, count, dtype), 0 if is_bare_nccl(case) else source
            if source == RANK:
                dist.send(sent, dest, tag=tag)
            elif dest == RANK:
                received = torch.zeros(count, dtype=dtype)
                dist.recv(received, source, tag=tag)
                assert torch.equal(received, sent)


def test_exchange_with_both_neighbours_at_once(case: hpccomm.World) -> None:
    right, left = (RANK + 1) % COMM.size, (RANK - 1) % COMM.size
    if right == RANK:
        pytest.skip("a rank alone has no neighbours")
    received = torch.zeros(200_000)
    sent = torch.full((200_000,), float(RANK))
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, right), dist.P2POp(dist.irecv, received, left)]):
        work.wait()
    assert (received == left).all()


def test_barrier_and_objects(case: hpccomm.World) -> None:
    dist.barrier()
    objects: list[object] = [None] * COMM.size
    dist.all_gather_object(objects, {"rank": RANK, "long": "x" * RANK * 100})
    assert objects == [{"rank": rank, "long": "x" * rank * 100} for rank in RANKS]


def test_wrong_arguments_are_refused_before_anything_is_sent(case: hpccomm.World) -> None:
    with pytest.raises(OptionError, match="ranks 0 to"):
        dist.group.WORLD.send([torch.ones(1)], COMM.size, 0)
    with pytest.raises(UnsupportedError, match="blocks of"):
        dist.group.WORLD._allgather_base(torch.zeros(COMM.size * 2 + 1), torch.zeros(2))
    with pytest.raises(UnsupportedError, match="sparse"):
        dist.group.WORLD.allreduce([torch.ones(2, 2).to_sparse()])
    dist.barrier()
