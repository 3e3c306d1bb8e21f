"""What training needs and one process can tell: how gradients are cut into buckets, and what checksums see."""

from __future__ import annotations

import pkgutil

import pytest
import torch

import hpccomm.training
from hpccomm.training.agreement import _PIECE, fingerprint
from hpccomm.training.bucket import cut


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


def test_a_fingerprint_of_many_pieces_sees_their_order() -> None:
    tensor = torch.zeros(2 * _PIECE + 3, dtype=torch.int64)
    tensor[5] = 1
    moved = tensor.roll(_PIECE)
    assert fingerprint(tensor) != fingerprint(moved)
