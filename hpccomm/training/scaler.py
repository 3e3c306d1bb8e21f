"""Loss scaling for float16 in which all ranks skip a step or none does."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist


class AgreedGradScaler(torch.amp.GradScaler):
    """torch's GradScaler, whose finding that a gradient is infinite or not a number is that of all ranks.

    torch's own decides on each rank alone, which is enough where DDP or `GradientBuckets` has averaged every gradient
    and nothing else was done to them. Where ranks step different parameters (a sharded optimiser) or keep gradients
    to themselves, one rank would skip alone, and the scales drift apart. torch's ShardedGradScaler agrees too, but
    not for optimisers that unscale by themselves (``fused=True``).

    `step`, or `unscale_` where it is called before, is collective: one all_reduce of 4 bytes for each optimiser.

    Args:
        device: Where the gradients are.
        group: The ranks; None for the default group.
        options: GradScaler's: init_scale, growth_factor, backoff_factor, growth_interval, enabled.
    """

    def __init__(self, device: str = "cpu", *, group: dist.ProcessGroup | None = None, **options: Any) -> None:
        super().__init__(device, **options)
        if self.is_enabled():  # torch's waits for `scale`, which a rank without rows does not call
            self._lazy_init_scale_growth_tracker(torch.device(device))
        self._group = group

    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide an optimiser's gradients by the scale, and agree on whether all are finite; collective."""
        super().unscale_(optimizer)
        if self.is_enabled():
            self._agree(self._per_optimizer_states[id(optimizer)]["found_inf_per_device"])

    def _check_inf_per_device(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        """Agree for an optimiser that unscales by itself."""
        found: dict[str, Any] = super()._check_inf_per_device(optimizer)
        self._agree(found)
        return found

    def _agree(self, found: dict[Any, torch.Tensor]) -> None:
        """Give all devices the worst finding of all ranks; a rank without any gradient has found nothing bad."""
        assert self._scale is not None
        found.setdefault(self._scale.device, torch.zeros((), device=self._scale.device))
        worst = torch.stack([one.to(self._scale.device) for one in found.values()]).amax()
        dist.all_reduce(worst, dist.ReduceOp.MAX, group=self._group)
        for one in found.values():
            one.copy_(worst)
