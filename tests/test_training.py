"""What training needs and one process can tell: how gradients are cut into buckets, and what checksums see."""

from __future__ import annotations

import pkgutil
import time

import pytest
import torch

import hpccomm.training
from hpccomm.training.agreement import _PIECE, fingerprint
from hpccomm.training.bucket import cut
from hpccomm.training.meter import GradientTimer
from hpccomm.training.sampler import ResumableSampler


def test_no_module_stands_in_the_way_of_a_name() -> None:
    modules = {module.name for module in pkgutil.iter_modules(hpccomm.training.__path__)}
    assert not modules & {*hpccomm.training.__all__}
    assert all(callable(getattr(hpccomm.training, name)) for name in hpccomm.training.__all__)


def parameters(*sizes: tuple[int, torch.dtype]) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.zeros(count, dtype=dtype)) for count, dtype in sizes]


def places(made: list[torch.nn.Parameter], limit: float, first: float) -> list[list[int]]:
    """Give the buckets as numbers of parameters."""
    numbers = {id(one): number for number, one in enumerate(made)}
    return [[numbers[id(one)] for one in bucket] for bucket in cut(made, limit=limit, first_limit=first)]


def test_buckets_fill_from_the_last_parameter_on() -> None:
    made = parameters(*[(1, torch.float32)] * 7)
    assert places(made, 8, 8) == [[6, 5], [4, 3], [2, 1], [0]]
    assert places(made, 12, 4) == [[6], [5, 4, 3], [2, 1, 0]]
    assert places(made, 1000, 1000) == [[6, 5, 4, 3, 2, 1, 0]]
    assert places(made, 1, 1) == [[one] for one in range(6, -1, -1)]
    assert cut([], limit=8, first_limit=8) == []


def test_a_bucket_holds_one_dtype_and_they_stand_as_they_fill() -> None:
    wide, narrow = (1, torch.float32), (1, torch.bfloat16)
    made = parameters(wide, narrow, wide, narrow, wide, narrow)
    assert places(made, 8, 8) == [[4, 2], [5, 3, 1], [0]]
    assert places(made, 4, 4) == [[4], [5, 3], [2], [1], [0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex128, torch.bool], ids=str)
@pytest.mark.parametrize("count", [1, 7, 64])
def test_a_fingerprint_sees_every_element(dtype: torch.dtype, count: int) -> None:
    tensor = torch.zeros(count, dtype=dtype)
    seen = {fingerprint(tensor)}
    for place in range(count):
        changed = tensor.clone()
        changed[place] = 1
        seen.add(fingerprint(changed))
    assert len(seen) == count + 1
    assert all(0 <= one < 2**62 for one in seen)


def test_a_fingerprint_is_that_of_the_values_and_not_of_the_layout() -> None:
    tensor = torch.randn(6, 4)
    assert fingerprint(tensor) == fingerprint(tensor.t().contiguous().t()) == fingerprint(tensor.clone())
    assert fingerprint(tensor) != fingerprint(tensor.flip(0))
    odd = torch.randn(9)
    assert fingerprint(odd[1:]) == fingerprint(odd[1:].clone())
    assert fingerprint(torch.empty(0)) == fingerprint(torch.empty(0))


def test_a_fingerprint_sees_signs_that_change_in_pairs() -> None:
    for dtype in (torch.float64, torch.float32):
        tensor = torch.arange(1, 9, dtype=dtype)
        assert fingerprint(tensor) != fingerprint(-tensor)


def test_a_fingerprint_of_a_sparse_gradient_is_that_of_its_values() -> None:
    embedding = torch.nn.Embedding(4, 2, sparse=True)
    embedding(torch.tensor([1, 3, 1])).sum().backward()
    assert fingerprint(embedding.weight.grad) == fingerprint(torch.tensor([[0.0] * 2, [2.0] * 2, [0.0] * 2, [1.0] * 2]))


def test_a_fingerprint_of_many_pieces_sees_their_order() -> None:
    tensor = torch.zeros(2 * _PIECE + 3, dtype=torch.int64)
    tensor[5] = 1
    moved = tensor.roll(_PIECE)
    assert fingerprint(tensor) != fingerprint(moved)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_sampler_gives_the_rest_of_an_epoch(shuffle: bool) -> None:
    made = [ResumableSampler(range(11), num_replicas=2, rank=rank, shuffle=shuffle) for rank in range(2)]
    for epoch in range(2):
        for one in made:
            one.set_position(epoch)
        every = [[*one] for one in made]
        assert {*every[0], *every[1]} == {*range(11)}
        for seen in range(8):
            for one, all_of_it in zip(made, every, strict=True):
                one.set_position(epoch, 2 * seen)
                assert [*one] == all_of_it[seen:]
                assert len(one) == max(0, 6 - seen)


def test_the_next_epoch_is_whole_however_it_is_set() -> None:
    sampler = ResumableSampler(range(11), num_replicas=1, rank=0)
    sampler.set_position(1, 8)
    sampler.set_epoch(1)
    assert len([*sampler]) == 3
    sampler.set_epoch(2)
    assert {*sampler} == {*range(11)}


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("before", "after"), [(8, 6), (3, 1), (2, 5)])
def test_an_epoch_that_other_ranks_go_on_with_is_seen_once(before: int, after: int, drop_last: bool) -> None:
    def rows(size: int, seen: int) -> list[list[int]]:
        made = [ResumableSampler(range(50), size, rank, seed=3, drop_last=drop_last) for rank in range(size)]
        for one in made:
            one.set_position(1, seen)
        assert len({len(one) for one in made}) == 1
        assert all(len([*one]) == len(one) for one in made)
        return [[*one] for one in made]

    begun = [row for one in rows(before, 0) for row in one[:4]]
    rest = [row for one in rows(after, 4 * before) for row in one]
    twice = len(begun + rest) - len({*begun, *rest})
    left = (50 - 4 * before) % after
    missing = len({*range(50)} - {*begun, *rest})
    assert (twice, missing) == ((0, left) if drop_last else (-left % after, 0))


def test_time_in_which_buckets_overlap_counts_once() -> None:
    futures: list[torch.futures.Future[torch.Tensor]] = [torch.futures.Future() for _ in range(3)]
    timer = GradientTimer()
    hook = timer.around(lambda state, bucket: state)
    start = time.monotonic()
    for future in futures[:2]:
        assert hook(future, None) is future
    time.sleep(0.05)
    for future in futures[:2]:
        future.set_result(torch.zeros(1))
    time.sleep(0.05)
    hook(futures[2], None)
    futures[2].set_result(torch.zeros(1))
    assert 0.05 <= timer.seconds <= time.monotonic() - start - 0.05


def test_a_hook_that_fails_is_not_on_its_way() -> None:
    def fails(state: object, bucket: object) -> torch.futures.Future[torch.Tensor]:
        raise RuntimeError("on purpose")

    timer = GradientTimer()
    with pytest.raises(RuntimeError, match="on purpose"):
        timer.around(fails)(None, None)
    before = timer.seconds
    time.sleep(0.01)
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(torch.zeros(1))
    timer.around(lambda state, bucket: done)(None, None)
    assert timer.seconds - before < 0.01
