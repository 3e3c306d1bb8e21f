"""What training loops need besides collectives: averaged gradients, DDP hooks, scaling, checkpoints, checks.

What it offers works on any torch process group of tensors in the CPU's memory, hpccomm's or another's. Nothing of it is
imported before it is asked for: `preemption` must be there before torch is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpccomm.lazy import finder

if TYPE_CHECKING:
    from hpccomm.training.accumulation import Micro, accumulate
    from hpccomm.training.adaptive_sum import adasum
    from hpccomm.training.agreement import check_gradients, check_parameters
    from hpccomm.training.batch_norm import SyncBatchNorm
    from hpccomm.training.buckets import GradientBuckets
    from hpccomm.training.checkpoint import Checkpoint
    from hpccomm.training.compression import compress
    from hpccomm.training.meter import GradientTimer
    from hpccomm.training.sampler import ResumableSampler
    from hpccomm.training.scaler import AgreedGradScaler
    from hpccomm.training.settling import settle_buckets
    from hpccomm.training.start import broadcast_model
    from hpccomm.training.survival import survive

__all__ = [
    "AgreedGradScaler",
    "Checkpoint",
    "GradientBuckets",
    "GradientTimer",
    "Micro",
    "ResumableSampler",
    "SyncBatchNorm",
    "accumulate",
    "adasum",
    "broadcast_model",
    "check_gradients",
    "check_parameters",
    "compress",
    "settle_buckets",
    "survive",
]

__getattr__ = finder(
    __name__,
    {
        "AgreedGradScaler": "hpccomm.training.scaler",
        "Checkpoint": "hpccomm.training.checkpoint",
        "GradientBuckets": "hpccomm.training.buckets",
        "GradientTimer": "hpccomm.training.meter",
        "Micro": "hpccomm.training.accumulation",
        "ResumableSampler": "hpccomm.training.sampler",
        "SyncBatchNorm": "hpccomm.training.batch_norm",
        "accumulate": "hpccomm.training.accumulation",
        "adasum": "hpccomm.training.adaptive_sum",
        "broadcast_model": "hpccomm.training.start",
        "check_gradients": "hpccomm.training.agreement",
        "check_parameters": "hpccomm.training.agreement",
        "compress": "hpccomm.training.compression",
        "settle_buckets": "hpccomm.training.settling",
        "survive": "hpccomm.training.survival",
    },
)
