"""Layouts: what of a user's tensor can be handed on as it is, and what must be staged.

A backend takes dense memory. Views that are strided, conjugated or negated are copied in and, where they are
written, copied back, so that their neighbours in the storage stay untouched. It knows no backend.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from hpccomm.errors import UnsupportedError


def is_dense(tensor: torch.Tensor) -> bool:
    """Tell whether the tensor's elements lie in memory one after the other, as they read."""
    return tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Give the tensor itself, detached, where it is dense, else a dense copy."""
    detached = tensor.detach()
    return detached if is_dense(tensor) else detached.resolve_conj().resolve_neg().contiguous()


def writable(tensor: torch.Tensor) -> torch.Tensor:
    """Give dense memory of the tensor's shape to receive into: its own, or new memory to be stored by `store`.

    Raises:
        UnsupportedError: Several elements of the tensor share memory (an expanded tensor).
    """
    refuse_overlap(tensor)
    detached = tensor.detach()
    return detached if is_dense(tensor) else torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def store(result: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy a result into the user's tensor, unless it is that tensor's own memory."""
    if result.data_ptr() != tensor.data_ptr() or not is_dense(tensor):
        tensor.detach().copy_(result.view(tensor.shape))


def refuse_overlap(tensor: torch.Tensor) -> None:
    """Refuse a tensor to be written whose elements overlap in memory."""
    extent = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < extent and tensor.numel():
                raise UnsupportedError(
                    f"write into a tensor of shape {tuple(tensor.shape)} and strides {tensor.stride()}",
                    found="several of its elements share memory",
                    remedy="pass tensor.clone() or tensor.contiguous()",
                )
            extent += (size - 1) * stride


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Give the bytes of a dense tensor; dimensions of size 1 may have any stride, which `view` does not take."""
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether the memory ranges of two dense tensors touch."""
    start, end = _range(one)
    first, last = _range(other)
    return start < last and first < end


def adjoining(tensors: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Give dense tensors of one dtype that lie in memory one after the other as one, or None where they do not."""
    filled = [tensor.detach() for tensor in tensors if tensor.numel()]
    ends = [_range(tensor)[1] for tensor in filled]
    starts = [tensor.data_ptr() for tensor in filled]
    storages = {tensor.untyped_storage().data_ptr() for tensor in filled}
    if len(storages) != 1 or starts[1:] != ends[:-1] or not all(map(is_dense, filled)):
        return None
    return filled[0].as_strided((sum(tensor.numel() for tensor in filled),), (1,))


def pieces(count: int, limit: int) -> Iterator[tuple[int, int]]:
    """Cut `count` elements into half-open intervals of at most `limit`; none for no elements.

    >>> list(pieces(7, 3))
    [(0, 3), (3, 6), (6, 7)]
    """
    for start in range(0, count, limit):
        yield start, min(start + limit, count)


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + tensor.numel() * tensor.element_size()
