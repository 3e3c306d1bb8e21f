"""Combinator `checked(x)`: before every collective the ranks compare what they are about to do.

Ranks that call different collectives, or the same with another operator, dtype, size or root, would hang or mix bytes;
here all of them raise one error that says who called what, and the group lives on. The sizes of an all_to_all, of which
no rank knows all, are not compared. It costs one small all-gather a collective. HPCCOMM_CHECK=1 puts it around any
backend.
"""

from __future__ import annotations

from zlib import crc32

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.context import Context
from hpccomm.backends.registry import build
from hpccomm.errors import MismatchError
from hpccomm.expression import Expression

_BYTES = 128  # of a description


def build_checked(context: Context, inner: Expression) -> Backend:
    """Build `inner`, and have whoever runs its collectives compare them first."""
    backend = build(inner, context)
    backend.checks = True
    backend.expression = f"checked({inner})"
    return backend


def compared(backend: Backend, description: str, operation: Operation) -> Operation:
    """Give an operation that begins with a comparison of all ranks' descriptions.

    Args:
        backend: Carries both.
        description: What this rank calls, in a few words.
        operation: The collective.

    Raises:
        MismatchError: The same on all ranks, before anything of the collective is sent.
    """
    data = _cut(description.encode(errors="replace"))
    device = "cpu" if "cpu" in backend.support.devices else backend.context.device
    mine = torch.tensor(list(data.ljust(_BYTES, b"\0")), dtype=torch.uint8, device=device)
    everyone = mine.new_empty(backend.size * _BYTES)
    yield from backend.all_gather(everyone, mine)
    if not everyone.view(backend.size, _BYTES).eq(mine).all():
        rows = everyone.view(backend.size, _BYTES).tolist()
        raise _mismatch(backend, [bytes(row).rstrip(b"\0").decode(errors="replace") for row in rows])
    yield from operation


def _cut(text: bytes) -> bytes:
    """Shorten a text to what is compared; what is left out counts by a checksum."""
    return text if len(text) <= _BYTES else text[: _BYTES - 12] + f"... {crc32(text):08x}".encode()


def _mismatch(backend: Backend, texts: list[str]) -> MismatchError:
    callers: dict[str, list[int]] = {}
    for rank, text in enumerate(texts):
        callers.setdefault(text, []).append(rank)
    lines = [f"{text} on rank {', '.join(map(str, ranks))}" for text, ranks in callers.items()]
    return MismatchError(
        f"run one collective on all {backend.size} ranks of a group over {backend.expression}",
        found="; ".join(lines),
        remedy="call the same collective with the same operator, dtype, size and root on all ranks, in one order",
        everywhere=True,
    )
