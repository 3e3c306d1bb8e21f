"""Give all ranks one rank's model to begin with, as DDP does by itself."""

from __future__ import annotations

import torch
import torch.distributed as dist

from hpccomm.training.agreement import require_same_layout


def broadcast_model(module: torch.nn.Module, *, root: int = 0, group: dist.ProcessGroup | None = None) -> None:
    """Overwrite the parameters and buffers of a module with those of one rank; collective.

    One broadcast a tensor, so S bytes in all for each rank.

    Args:
        module: The same layers on every rank.
        root: The rank of the group that has the right ones.
        group: The ranks; None for the default group.

    Raises:
        TrainingError: The ranks have different layers; the same on all ranks.
    """
    require_same_layout("broadcast a model", module, group)
    for tensor in (*module.parameters(), *module.buffers()):
        dist.broadcast(tensor.detach(), group=group, group_src=root)
