"""MPI that takes calls from one thread at a time: whoever waits steps everything, and nothing is different.

A world of each backend that is given, one after the other.
"""

from __future__ import annotations

import sys
import time

import mpi4py

mpi4py.rc.thread_level = "serialized"
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from mpi4py import MPI  # noqa: E402, F401 - starts MPI
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

import hpccomm  # noqa: E402


def main(backend: str) -> None:
    with hpccomm.init(backend, timeout_s=60) as world:
        rank, size = world.topology.rank, world.topology.world_size
        groups = [dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("mpi4py")) for _ in range(2)]
        stepped = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options("ring(mpi4py)"))
        for count in (3, 100_000):
            tensors = [torch.full((count,), float(rank + which)) for which in (0, 1)]
            order = (0, 1) if rank % 2 else (1, 0)
            works = [dist.all_reduce(tensors[which], group=groups[which], async_op=True) for which in order]
            for work in works:
                assert work.wait()
            assert [tensor[-1].item() for tensor in tensors] == [sum(range(size)) + size * which for which in (0, 1)]
        if rank:
            time.sleep(0.3)  # rank 0 is in the next barrier before the others ask for what it must step meanwhile
        pending = dist.all_reduce(torch.ones(100_000), group=stepped, async_op=True)
        if rank:
            pending.wait()
        dist.barrier(group=groups[0])
        pending.wait()
        future = dist.all_reduce(torch.ones(50_000), async_op=True).get_future()
        assert future.done()
        ddp = DistributedDataParallel(torch.nn.Linear(8, 8))
        ddp(torch.full((2, 8), float(rank))).sum().backward()
        arrived = torch.zeros(3)
        receiving = dist.irecv(arrived, (rank - 1) % size)
        dist.send(torch.full((3,), float(rank)), (rank + 1) % size)
        receiving.wait()
        assert arrived.eq((rank - 1) % size).all()
        print(f"{backend} is right\n", end="", flush=True)


for asked in sys.argv[1:]:
    main(asked)
