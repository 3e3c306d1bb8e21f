"""See that all ranks hold the same bits, by checksums, and name what differs first where they do not.

Only numbers travel: one all-reduce of two, one of two a tensor, and one gather where something differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch
import torch.distributed as dist

from hpccomm.backends.layout import as_bytes, dense
from hpccomm.errors import TrainingError
from hpccomm.topology.grouping import count, ranges

_BITS = 2**62 - 1
_WORD = 2**64 - 1
_FACTOR = 0x5851F42D4C957F2D  # odd, so that no bit is lost
_PIECE = 1 << 18
_WORD_BYTES = 4
_NONE = -1


def check_parameters(module: torch.nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
    """See that the parameters and buffers of a module are equal to the bit on all ranks; collective.

    For debugging: it reads all S bytes twice and sends 16 bytes a tensor.

    Args:
        module: The same layers on every rank, of any dtypes.
        group: The ranks; None for the default group.

    Raises:
        TrainingError: The same on all ranks; names the first that differs and which ranks hold the same.
    """
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    _check("find the same parameters on all ranks", module, tensors, group)


def check_gradients(module: torch.nn.Module, *, group: dist.ProcessGroup | None = None) -> None:
    """See that the gradients of a module are equal to the bit on all ranks, or absent on all; collective.

    To be called where they have been averaged: after backward under DDP, after `GradientBuckets.wait`. It costs what
    `check_parameters` costs.

    Args:
        module: The same layers on every rank, of any dtypes.
        group: The ranks; None for the default group.

    Raises:
        TrainingError: The same on all ranks; names the first that differs and which ranks hold the same.
    """
    tensors = {f"the gradient of {name}": parameter.grad for name, parameter in module.named_parameters()}
    _check("find the same gradients on all ranks", module, tensors, group)


def require_same_layout(asked: str, module: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    """Refuse a module whose tensors' names, shapes, dtypes or needs of a gradient differ between ranks; collective.

    Args:
        asked: What it is needed for, for the error.
        module: The module.
        group: The ranks; None for the default group.

    Raises:
        TrainingError: The same on all ranks; says which ranks hold the same module.
    """
    tensors = [*module.named_parameters(), *module.named_buffers()]
    text = "\n".join(f"{name} {tuple(one.shape)} {one.dtype} {one.requires_grad}" for name, one in tensors)
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "little")
    if _differing([digest], group):
        raise TrainingError(
            asked,
            found=f"the names, shapes, dtypes or frozen parts of its parameters differ: {_camps(digest, group)}",
            remedy="build the same model on every rank; freeze parameters alike before this call",
            everywhere=True,
        )


def fingerprint(tensor: torch.Tensor) -> int:
    """Give a number of 62 bits that differs where one element differs or two have changed places.

    Any dtype, shape and layout; a NaN counts by its bits. It guards against accidents, not against forgery.

    The words are summed in twice their width: in their own, the highest bits of an even number of words, the signs of
    float64, would cancel.
    """
    data = as_bytes(dense(tensor if tensor.layout == torch.strided else tensor.to_dense()))
    if data.storage_offset() % _WORD_BYTES:
        data = data.clone()
    whole = data.numel() // _WORD_BYTES * _WORD_BYTES
    total = int.from_bytes(bytes(data[whole:].tolist()), "little")
    words = data[:whole].view(torch.int32)
    weights = 2 * torch.arange(min(_PIECE, words.numel()), device=words.device) + 1
    for piece in torch.split(words, _PIECE) if whole else ():
        for summed in (piece.sum(), (piece * weights[: piece.numel()]).sum()):
            total = (total * _FACTOR + int(summed)) & _WORD
    return (total ^ total >> 62) & _BITS


def _check(
    asked: str,
    module: torch.nn.Module,
    tensors: Mapping[str, torch.Tensor | None],
    group: dist.ProcessGroup | None,
) -> None:
    require_same_layout(asked, module, group)
    words = [_NONE if tensor is None else fingerprint(tensor) for tensor in tensors.values()]
    differ = _differing(words, group)
    if differ:
        more = f"; {len(differ)} of {count(len(words), 'tensor')} differ" if differ[1:] else ""
        raise TrainingError(
            asked,
            found=f"{list(tensors)[differ[0]]} differs first: {_camps(words[differ[0]], group)}{more}",
            remedy="look for a step, a random number or a backward that some ranks did alone, or a missed average",
            everywhere=True,
        )


def _differing(words: Sequence[int], group: dist.ProcessGroup | None) -> list[int]:
    """Give the places at which not all ranks have the same number; all ranks have as many."""
    if not words:
        return []
    both = torch.tensor([*words, *(-word for word in words)], dtype=torch.int64)
    dist.all_reduce(both, dist.ReduceOp.MIN, group=group)
    least, negated = both.view(2, -1)
    return [place for place, differs in enumerate((least != -negated).tolist()) if differs]


def _camps(word: int, group: dist.ProcessGroup | None) -> str:
    """Say which ranks of the group hold the same number, the largest camp first."""
    gathered = [torch.empty(1, dtype=torch.int64) for _ in range(dist.get_world_size(group))]
    dist.all_gather(gathered, torch.tensor([word]), group=group)
    camps: dict[int, list[int]] = {}
    for rank, of in enumerate(gathered):
        camps.setdefault(int(of), []).append(rank)
    ordered = sorted(camps.items(), key=lambda camp: (-len(camp[1]), camp[1]))
    words = [f"{'rank' if len(ranks) == 1 else 'ranks'} {ranges(ranks)}" for _, ranks in ordered]
    none = " without any" if _NONE in camps else ""
    return ", ".join(text + none * (key == _NONE) for text, (key, _) in zip(words, ordered, strict=True))
