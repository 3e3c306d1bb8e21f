"""Compare what a rank got with what it must have got."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

import torch

from fuzz.layouts import as_bytes
from fuzz.seat import Call, Written

SHOWN = 4


def problems(call: Call, values: str) -> Iterator[str]:
    """Give what is wrong after a call that has ended well.

    Args:
        call: The call.
        values: What its values are: ``bits`` must arrive bit by bit.
    """
    for index, written in enumerate(call.written):
        if text := _difference(written, values):
            yield f"tensor {index}: {text}"
        if not written.placed.neighbours_are_as_they_were:
            yield f"tensor {index}: elements around it in the storage have changed"
    for index, placed in enumerate(call.kept):
        if not placed.is_as_it_was:
            yield f"a tensor that is only read has changed, the one of index {index}: {_few(placed.content)}"
    got, expected = call.objects()
    if got != expected:
        yield f"expected {expected!r}, got {got!r}"


def refusal_problems(call: Call) -> Iterator[str]:
    """Give what is wrong after a call that was refused."""
    for placed in [*(written.placed for written in call.written), *call.kept]:
        if not placed.is_as_it_was:
            yield f"it was refused, but a tensor has changed: {_few(placed.content)}"


def digest(calls: Sequence[Call]) -> bytes:
    """Give 8 bytes made from all bits that must be equal on all ranks."""
    made = hashlib.blake2b(digest_size=8)
    for call in calls:
        for written in call.written:
            if written.everywhere:
                made.update(as_bytes(written.placed.content).numpy().tobytes())
    return made.digest()


def _difference(written: Written, values: str) -> str | None:
    got, expected = written.placed.content.reshape(-1), written.expected.reshape(-1)
    if values == "bits":
        return None if torch.equal(as_bytes(got), as_bytes(expected)) else _shown(got, expected, None)
    mine, wanted = _wide(got), _wide(expected)
    if written.tolerance is None:
        return None if torch.equal(mine, wanted) else _shown(got, expected, mine != wanted)
    tolerance = written.tolerance.reshape(mine.shape)
    beyond = ~((mine - wanted).abs() <= tolerance)
    if not beyond.any():
        return None
    return f"{_shown(mine, wanted, beyond)}; at most {_few(tolerance[beyond])} off"


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Give float64, complex numbers as two, or the integers of all others."""
    if tensor.is_complex():
        return torch.view_as_real(tensor.to(torch.complex128))
    return tensor.to(torch.float64 if tensor.dtype.is_floating_point else torch.int64)


def _shown(got: torch.Tensor, expected: torch.Tensor, where: torch.Tensor | None) -> str:
    if where is None:
        width = got.element_size()
        where = (as_bytes(got) != as_bytes(expected)).view(-1, width).any(1)
    if where.dim() > got.dim():
        where = where.any(-1)
    count = int(where.sum())
    first = [tuple(index) for index in where.nonzero()[:SHOWN].tolist()]
    picked = [
        (tensor[where] if tensor.dtype.itemsize > 1 else tensor.view(where.shape)[where]) for tensor in (expected, got)
    ]
    return f"{count} of {where.numel()} elements, first at {first}: expected {_few(picked[0])}, got {_few(picked[1])}"


def _few(tensor: torch.Tensor) -> str:
    return str(_plain(tensor.reshape(-1)[:SHOWN]))


def _plain(tensor: torch.Tensor) -> list[object]:
    return list(
        (tensor.to(torch.float32) if tensor.dtype.itemsize == 1 and tensor.is_floating_point() else tensor).tolist()
    )
