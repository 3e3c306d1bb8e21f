"""torch.distributed's own functions on a GPU's tensors, on a device in host memory that does its work late."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, world

from hpccomm.backends import failover, standing
from hpccomm.backends.bare import has_backend_class
from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.registry import build, register
from hpccomm.bootstrap import plugin
from hpccomm.expression import parse
from recording import RecordingDevice

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(COMM.size > 3, reason="nothing new with more ranks")]

RANK, SIZE = COMM.rank, COMM.size
LARGE = 300_000  # elements of a message that waits for its receiver
LEFT, RIGHT = (RANK - 1) % SIZE, (RANK + 1) % SIZE


def test_torchs_own_calls_go_through_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RecordingDevice()
    monkeypatch.setattr(plugin, "device_of", lambda _: device)
    with world("A" * SIZE, "mpi4py"):
        tensor = device.tensor(torch.zeros(4))
        device.compute("fill", lambda: tensor.fill_(RANK + 1.0))
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()
        assert torch.equal(work.get_future().wait()[0], tensor)
        device.finish()
        assert set(tensor.tolist()) == {SIZE * (SIZE + 1) / 2}
        received, sent = device.tensor(torch.zeros(LARGE)), device.tensor(torch.zeros(LARGE))
        device.compute("fill", lambda: sent.fill_(RANK))
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, RIGHT), dist.P2POp(dist.irecv, received, LEFT)])
        assert len(works) == (1 if has_backend_class() else 2), "torch before 2.14 posts one after the other"
        for work in works:
            work.wait()
        device.finish()
        assert set(received.tolist()) == {float(LEFT)}
        dist.barrier()


class OnGpu(GlooBackend):
    """Stands for NCCL, which takes a GPU's tensors alone, and fails."""

    support = replace(GlooBackend.support, devices=frozenset({"cuda"}))

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        raise RuntimeError("the GPU's links are down")


def test_host_memory_serves_where_what_is_for_gpus_alone_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    device = RecordingDevice()
    for module in (failover, standing):
        monkeypatch.setattr(module, "device_of", lambda _: device)
    register("on_gpu", OnGpu)
    with world("A" * SIZE, "mpi4py") as made:
        context = made.group._runner.backend.context.child("failover")  # type: ignore[attr-defined]
        backend, tensor = build(parse("failover(on_gpu, mpi4py)"), context), device.tensor(torch.ones(4))
        assert backend.support.devices == {"cuda"}
        for waits in backend.all_reduce(tensor, ReduceOp.SUM):
            if isinstance(waits, LibraryCall):
                waits.call(30.0)
        assert tensor.tolist() == [SIZE] * 4
        backend.close()
