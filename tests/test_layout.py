"""Layouts: which tensors overlap themselves, and what dense and store do."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hpccomm.backends.layout import (
    adjoining,
    as_bytes,
    dense,
    is_dense,
    pieces,
    refuse_overlap,
    share_memory,
    store,
    writable,
)
from hpccomm.errors import UnsupportedError

SHAPES = st.lists(st.integers(0, 4), max_size=3)


def addresses(tensor: torch.Tensor) -> list[int]:
    steps = [[stride * i for i in range(size)] for stride, size in zip(tensor.stride(), tensor.shape, strict=True)]
    return [sum(at) for at in itertools.product(*steps)]


@given(SHAPES.flatmap(lambda shape: st.tuples(st.just(shape), st.tuples(*[st.integers(0, 9)] * len(shape)))))
def test_tensors_that_overlap_are_never_let_through(case) -> None:
    shape, strides = case
    tensor = torch.zeros(82).as_strided(shape, strides)
    overlaps = len(set(addresses(tensor))) < tensor.numel()
    try:
        refuse_overlap(tensor)
    except UnsupportedError:
        return  # interleaved strides such as (2, 3) may be refused though they do not overlap
    assert not overlaps


@pytest.mark.parametrize(
    "tensor",
    [
        torch.zeros(4, 6)[:, 1],
        torch.zeros(4, 6)[::2, 1:5:3],
        torch.zeros(4, 6).t(),
        torch.zeros(2, 3, 4).permute(2, 0, 1),
        torch.zeros(3, 1).expand(3, 1),
        torch.zeros(0, 3).expand(0, 3),
        torch.zeros(()),
    ],
    ids=lambda tensor: f"{tuple(tensor.shape)}/{tensor.stride()}",
)
def test_ordinary_views_are_let_through(tensor: torch.Tensor) -> None:
    refuse_overlap(tensor)
    result = torch.arange(float(tensor.numel())).view(tensor.shape)
    store(result, tensor)
    assert torch.equal(tensor, result)


def test_dense_copies_only_what_it_must() -> None:
    base = torch.arange(6.0).view(2, 3)
    assert dense(base).data_ptr() == base.data_ptr()
    assert dense(base.t()).data_ptr() != base.data_ptr()
    assert torch.equal(dense(base.t()), base.t())
    imaginary = torch.tensor([1 + 2j]).conj().imag
    assert not is_dense(imaginary)
    assert dense(imaginary).item() == -2
    assert writable(base).data_ptr() == base.data_ptr()
    assert writable(base.t()).shape == (3, 2)


def test_bytes_of_a_dense_tensor_with_a_stride_that_means_nothing() -> None:
    column = torch.tensor([[1, 2, 3]])[:, 1]
    assert is_dense(column)
    as_bytes(column)[0] = 5
    assert as_bytes(column).tolist() == [5] + [0] * 7
    assert column.tolist() == [5]


def test_memory_ranges() -> None:
    base = torch.zeros(10)
    assert share_memory(base[:5], base[4:])
    assert not share_memory(base[:5], base[5:])


@given(st.integers(0, 100), st.integers(1, 30))
def test_pieces_cover_everything_once(count: int, limit: int) -> None:
    cut = list(pieces(count, limit))
    assert [i for start, end in cut for i in range(start, end)] == list(range(count))
    assert all(end - start <= limit for start, end in cut)


def test_only_tensors_that_lie_one_after_the_other_are_joined() -> None:
    rows = torch.arange(12.0).view(4, 3)
    found = adjoining([rows[0], rows[1:3], rows[3][:0], rows[3]])
    assert found is not None
    assert found.data_ptr() == rows.data_ptr()
    assert found.tolist() == list(range(12))
    apart = [[rows[0], rows[2]], [rows[1], rows[0]], [rows[:, 0], rows[:, 1]], [rows[0], rows[0].clone()], [rows[:0]]]
    assert [adjoining(tensors) for tensors in apart] == [None] * len(apart)
