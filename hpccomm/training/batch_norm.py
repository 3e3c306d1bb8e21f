"""Batch normalisation over the rows of all ranks, on tensors in the CPU's memory, which torch's own refuses."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.modules.batchnorm import _BatchNorm


class SyncBatchNorm(_BatchNorm):
    """torch's BatchNorm1d, 2d or 3d, whose mean and variance are those of all ranks' rows.

    Ranks may have different numbers of rows, and some none. It computes in float32 at least. The running statistics
    are the same on all ranks.

    In training its forward and backward are collective, for C channels two all_reduces of about C numbers each.

    Args:
        channels: The size of dimension 1.
        group: The ranks; None for the default group.
        options: BatchNorm2d's: eps, momentum, affine, track_running_stats.
    """

    def __init__(self, channels: int, *, group: dist.ProcessGroup | None = None, **options: Any) -> None:
        super().__init__(channels, **options)
        self._group = group

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise.

        Args:
            input: Of shape (rows, channels, ...), of floats.

        Returns:
            The same shape and dtype.
        """
        if not self.training:
            return super().forward(input)
        wide = input.to(torch.promote_types(input.dtype, torch.float32))
        others = [at for at in range(wide.dim()) if at != 1]
        shape = [1, -1, *[1] * (wide.dim() - 2)]
        rows = wide.new_tensor([wide[:, 0].numel()])
        total = self._sum(torch.cat([wide.sum(others), rows]))
        mean, count = total[:-1] / total[-1], total[-1].detach()
        centred = wide - mean.view(shape)
        variance = self._sum((centred * centred).sum(others)) / count
        self._remember(mean, variance * count / (count - 1).clamp_min(1))
        normal = centred * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        result: torch.Tensor = normal.to(input.dtype)
        return result

    def _check_input_dim(self, input: torch.Tensor) -> None:
        """Take any number of dimensions; torch asks."""

    def _sum(self, tensor: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = _Sum.apply(tensor, self._group)
        return total

    @torch.no_grad()
    def _remember(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        """Take a batch into the running statistics."""
        if self.running_mean is None or self.running_var is None or self.num_batches_tracked is None:
            return
        self.num_batches_tracked.add_(1)
        share = 1 / int(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), share)
        self.running_var.lerp_(variance.to(self.running_var.dtype), share)


class _Sum(torch.autograd.Function):
    """The sum over ranks, whose gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
        """Add up."""
        ctx.group = group
        total = tensor.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Add the gradients up."""
        return _Sum.apply(gradient, ctx.group), None
