"""Views that hold values among others, whose neighbours must stay as they are."""

from __future__ import annotations

from collections.abc import Iterator

import torch


def layouts(values: torch.Tensor) -> Iterator[tuple[str, torch.Tensor, torch.Tensor]]:
    """Give views that hold six values, each with the storage around it."""
    for name, base, view in (
        ("column", torch.full((6, 3), -7.0), lambda b: b[:, 1]),
        ("transposed", torch.full((2, 3), -7.0), lambda b: b.t()),
        ("offset", torch.full((9,), -7.0), lambda b: b[2:8]),
        ("every second", torch.full((12,), -7.0), lambda b: b[::2]),
        ("2 x 1 x 3", torch.full((2, 1, 3), -7.0), lambda b: b),
    ):
        view(base).copy_(values.view(view(base).shape))
        yield name, base, view(base)
