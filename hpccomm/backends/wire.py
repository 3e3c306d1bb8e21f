"""An all-reduce of float32 whose messages are of a narrower dtype: half the bytes, at most two roundings.

Every rank rounds its tensor once and sends each other rank that one's share of it; owners add what comes in float32,
in rank order, round the sum once, and send it to all. Owners use the rounded sum too, so that all have the same bits.
With u the relative error of one rounding (2**-8 to bfloat16, 2**-11 to float16), the error is at most 2u(1 + u) *
sum(abs(x_i)) over the ranks' tensors, next to float32's own; float16 also loses what is below its normal range. It
travels scaled by a power of 2, so that sums stay in its range wherever the ranks' own elements do.
"""

from __future__ import annotations

import math

import torch

from hpccomm.backends.base import Backend, Operation

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def all_reduce_narrow(backend: Backend, buffer: torch.Tensor, wire: torch.dtype, ranks: int) -> Operation:
    """Sum a flat float32 tensor over a backend's ranks, in place.

    Args:
        backend: Moves the bytes, by all_to_all and all_gather.
        buffer: The tensor.
        wire: One of `DTYPES`.
        ranks: How many tensors are summed in all, those added before included.
    """
    size, count = backend.size, -(-buffer.numel() // backend.size)
    scale = 2.0 ** -math.ceil(math.log2(ranks)) if wire == torch.float16 else 1.0
    sent = buffer.new_zeros(size * count, dtype=wire)
    whole = sent[: buffer.numel()]
    whole.copy_(buffer * scale if scale != 1 else buffer)
    received, shares = torch.empty_like(sent), [count] * size
    yield from backend.all_to_all(received, sent, shares, shares)
    total = received[:count].float()
    for rank in range(1, size):
        total += received[rank * count : (rank + 1) * count]
    yield from backend.all_gather(sent, total.to(wire))
    buffer.copy_(whole)
    if scale != 1:
        buffer /= scale
