"""This rank's GPU: which ones it sees, and the one that it takes."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hpccomm.topology.binding import Binding, device_names


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Name the GPUs that CUDA shows this process, in its order; none where torch cannot use any."""
    if not torch.cuda.is_available():
        return ()
    uuids = [str(torch.cuda.get_device_properties(index).uuid) for index in range(torch.cuda.device_count())]
    return device_names(environ.get("CUDA_VISIBLE_DEVICES"), uuids)


def take(binding: Binding | None) -> torch.device:
    """Make a GPU the current device of this thread, and give it; the CPU where there is none."""
    if binding is None:
        return torch.device("cpu")
    torch.cuda.set_device(binding.index)
    return torch.device("cuda", binding.index)
