"""An all-reduce that fails under DDP: an exception on every rank, whichever bucket it is, and no crash."""

from __future__ import annotations

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from worlds import COMM, FEW_RANKS, world

import hpccomm
from hpccomm.errors import HpccommError

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

BUCKETS = 4


def model(group: dist.ProcessGroup | None) -> DistributedDataParallel:
    torch.manual_seed(0)
    layers = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(BUCKETS)])
    return DistributedDataParallel(layers, process_group=group, bucket_cap_mb=0.004)


def step(ddp: DistributedDataParallel) -> None:
    ddp(torch.full((2, 32), float(COMM.rank))).sum().backward()


def calls_of(group: dist.ProcessGroup) -> int:
    return int(group._get_sequence_number_for_group())


def test_the_failure_of_any_bucket_is_an_exception_on_every_rank() -> None:
    with world("A" * COMM.size, "mpi4py", timeout_s=20):
        healthy = dist.new_group(backend="hpccomm")
        ddp = model(healthy)
        step(ddp)
        before = calls_of(healthy)
        step(ddp)
        buckets = calls_of(healthy) - before
        assert buckets >= 2
        for kind in ("raise", "hang"):
            for bucket in range(1, buckets + 1):
                backend = hpccomm.Options(f"faulty(mpi4py, {kind}, rank=1, call={before + bucket})")
                seconds = 30.0 if kind == "raise" else 1.0
                struck = dist.new_group(backend="hpccomm", pg_options=backend, timeout=timedelta(seconds=seconds))
                broken = model(struck)
                step(broken)
                with pytest.raises((HpccommError, RuntimeError), match=r"group|on purpose"):
                    step(broken)
                COMM.Barrier()
        again = model(healthy)
        step(again)
        gradients = [parameter.grad for parameter in again.parameters()]
        assert all(gradient is not None and torch.isfinite(gradient).all() for gradient in gradients)
