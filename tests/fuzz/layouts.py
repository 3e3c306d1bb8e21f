"""Tensors of any layout, with what surrounds them in their storage."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from reference import any_bits

Shape = tuple[int, ...]

LAZY = ("conj", "neg")
OVERLAPPING = "expanded"


def _ones_apart(base: torch.Tensor, shape: Shape) -> torch.Tensor:
    """Put a dimension of size 1, with a stride that means nothing, behind the first one."""
    strides = torch.empty(shape, device="meta").stride() or (1,)
    first, *rest = shape or (1,)
    return base.as_strided((first, 1, *rest), (strides[0], 5, *strides[1:]))


# For each layout the shape of the storage, and the view of it.
_LAYOUTS: dict[str, tuple[Callable[[Shape], Shape], Callable[[torch.Tensor, Shape], torch.Tensor]]] = {
    "dense": (lambda shape: shape, lambda base, _: base),
    "offset": (
        lambda shape: (math.prod(shape) + 8,),
        lambda base, shape: base[3 : 3 + math.prod(shape)].view(shape),
    ),
    "column": (lambda shape: (*shape, 3), lambda base, _: base[..., 1]),
    "transposed": (lambda shape: shape[::-1], lambda base, _: base.permute(tuple(range(base.dim())[::-1]))),
    "alternate": (lambda shape: (2, *shape, 2), lambda base, _: base[1, ..., 1]),
    "ones": (lambda shape: shape, _ones_apart),
    "grad": (lambda shape: shape, lambda base, _: base.detach().requires_grad_()),
    "conj": (lambda shape: shape, lambda base, _: base.conj()),
    "neg": (lambda shape: shape, lambda base, _: torch._neg_view(base)),
    OVERLAPPING: (lambda shape: (1,) * len(shape), lambda base, shape: base.expand(shape)),
}


def layouts_of(dtype: torch.dtype) -> list[str]:
    """List the layouts that tensors of a dtype may have, but for the one that is never written."""
    lacking = {OVERLAPPING}
    if not dtype.is_complex:
        lacking.add("conj")
    if not dtype.is_complex and dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        lacking.add("neg")
    if not dtype.is_complex and not dtype.is_floating_point:
        lacking.add("grad")
    return [name for name in _LAYOUTS if name not in lacking]


def overlaps(layout: str, shape: Shape) -> bool:
    """Tell whether several elements share memory."""
    return layout == OVERLAPPING and math.prod(shape) > 1


class Placed:
    """A tensor in its storage, of which everything is kept as it was.

    Args:
        values: The tensor's elements; of an overlapping layout, all equal.
        layout: One of the names above.
        generator: Draws what surrounds it.
    """

    def __init__(self, values: torch.Tensor, layout: str, generator: torch.Generator) -> None:
        shape_of, self._view_of = _LAYOUTS[layout]
        self.shape = tuple(values.shape)
        self.base = any_bits(shape_of(self.shape), values.dtype, generator)
        self.tensor = self._view_of(self.base, self.shape)
        self.overlaps = overlaps(layout, self.shape)
        if not self.overlaps:
            self._put(self.base, values)
        elif values.numel():
            self.base.copy_(values.flatten()[0])
        self._before = self.base.clone()
        self._values = values

    @property
    def is_as_it_was(self) -> bool:
        """Whether no byte of the storage has changed."""
        return torch.equal(as_bytes(self.base), as_bytes(self._before))

    @property
    def neighbours_are_as_they_were(self) -> bool:
        """Whether no byte around the tensor has changed."""
        if self.base.numel() == self.tensor.numel():
            return True
        undone = self.base.clone()
        self._put(undone, self._values)
        return torch.equal(as_bytes(undone), as_bytes(self._before))

    @property
    def content(self) -> torch.Tensor:
        """The tensor's elements, dense."""
        return (
            self.tensor.detach()
            .resolve_conj()
            .resolve_neg()
            .clone(memory_format=torch.contiguous_format)
            .view(self.shape)
        )

    def part(self, index: int, count: int) -> Placed:
        """Give one of so many equal parts of a dense tensor, in the same memory."""
        flat = self.base.view(-1)
        share = flat.numel() // count
        made = Placed(flat[index * share : (index + 1) * share], "dense", torch.Generator())
        made.base = made.tensor = flat[index * share : (index + 1) * share]
        return made

    def _put(self, base: torch.Tensor, values: torch.Tensor) -> None:
        view = self._view_of(base, self.shape).detach()
        view.copy_(values.view(view.shape))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Give the bytes of a dense tensor."""
    return tensor.reshape(-1).view(torch.uint8)


def stacked(shape: Shape, count: int) -> Shape:
    """Give the shape of so many blocks of a shape, one after the other."""
    return (count * shape[0], *shape[1:]) if shape else (count,)
