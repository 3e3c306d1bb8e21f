"""What the ranks compare of results."""

from __future__ import annotations

import pytest
import torch

from hpccomm.backends.jury import checksum


@pytest.mark.parametrize("dtype", (torch.float64, torch.float32, torch.int64, torch.float16, torch.uint8), ids=str)
def test_every_single_bit_counts(dtype: torch.dtype) -> None:
    tensor = torch.arange(11).to(dtype)
    right, data = checksum(tensor), tensor.view(torch.uint8)
    for byte in range(data.numel()):
        for bit in range(8):
            data[byte] ^= 1 << bit
            assert checksum(tensor) != right
            data[byte] ^= 1 << bit
    assert checksum(tensor) == right


def test_sums_of_any_size_wrap() -> None:
    least = torch.full((3,), -(2**63))
    assert checksum(least) == -(2**63)
    assert checksum(torch.empty(0)) == 0
    assert checksum(least.view(torch.uint8)[8:23]) == checksum(least.view(torch.uint8)[:15])
