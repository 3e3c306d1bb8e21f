"""Buckets: which gradients travel together, and the dense memory that they travel in.

It knows neither hooks nor the order in which buckets are sent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist


class Bucket:
    """Memory for the gradients of some parameters of one dtype, averaged by one operation.

    Behind the gradients stand as many flags: 1 where this rank has that gradient, 0 where it has none, not a number
    where it has a sparse one. Averaged with the rest, they tell every rank what some rank has.

    Args:
        parameters: At least one, all of one dtype on one device.

    Attributes:
        arrived: The `id` of every parameter whose gradient is there.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self.arrived: set[int] = set()
        sizes = [parameter.numel() for parameter in parameters]
        self._memory = torch.zeros(sum(sizes) + len(sizes), dtype=parameters[0].dtype, device=parameters[0].device)
        *parts, self._flags = torch.split(self._memory, [*sizes, len(sizes)])
        self._views = [part.view(parameter.shape) for part, parameter in zip(parts, parameters, strict=True)]

    @property
    def complete(self) -> bool:
        """Whether all its gradients are there."""
        return len(self.arrived) == len(self.parameters)

    @torch.no_grad()
    def begin(self, group: dist.ProcessGroup | None) -> dist.Work:
        """Copy the gradients in and begin to average them; what a rank lacks or has sparse goes as zeros."""
        flags = [_flag(parameter.grad) for parameter in self.parameters]
        for parameter, view, flag in zip(self.parameters, self._views, flags, strict=True):
            if flag == 1 and parameter.grad is not None:
                view.copy_(parameter.grad)
            else:
                view.zero_()
        self._flags.copy_(torch.tensor(flags))
        work = dist.all_reduce(self._memory, dist.ReduceOp.AVG, group=group, async_op=True)
        assert work is not None
        return work

    @property
    def sparse(self) -> list[torch.nn.Parameter]:
        """Those that have a sparse gradient on some rank; once averaged, the same on all."""
        return [one for one, is_so in zip(self.parameters, self._flags.isnan().tolist(), strict=True) if is_so]

    @torch.no_grad()
    def deliver(self) -> None:
        """Copy the averages out; a gradient that no rank has stays as it is."""
        for parameter, view, some_rank_has_it in zip(
            self.parameters, self._views, (self._flags != 0).tolist(), strict=True
        ):
            if some_rank_has_it and parameter.grad is None:
                parameter.grad = view.clone()
            elif some_rank_has_it and parameter.grad is not None:
                parameter.grad.detach().copy_(view)


def cut(
    parameters: Sequence[torch.nn.Parameter], *, limit: float, first_limit: float
) -> list[list[torch.nn.Parameter]]:
    """Cut parameters into buckets, in the order in which backward is likely to fill them.

    Gradients come about in the reverse of the order of the layers. A bucket takes parameters of one dtype and device
    until it holds `limit` bytes or more; other dtypes in between do not end it. Buckets stand in the order of their
    last parameters.

    Args:
        parameters: In the order of their registration.
        limit: Bytes after which a bucket takes no more.
        first_limit: The same for the first bucket that fills, so that the first operation begins early.
    """
    open_ones: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    full: list[list[int]] = []
    backwards = list(reversed(parameters))
    for place, parameter in enumerate(backwards):
        key = parameter.dtype, parameter.device
        members = open_ones.setdefault(key, [])
        members.append(place)
        size = sum(backwards[one].numel() for one in members) * parameter.element_size()
        if size >= (limit if full else first_limit):
            full.append(open_ones.pop(key))
    ordered = sorted([*full, *open_ones.values()], key=lambda members: members[-1])
    return [[backwards[place] for place in members] for members in ordered]


def _flag(gradient: torch.Tensor | None) -> float:
    if gradient is None:
        return 0.0
    return 1.0 if gradient.layout == torch.strided else math.nan
