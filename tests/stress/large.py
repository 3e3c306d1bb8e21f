"""Move and reduce more than 2^31 bytes in one call: libraries count in 32 bits, so that such a call is cut into pieces.

mpirun -np 2 python tests/stress/large.py; takes some 9 GB of memory and a minute.
"""

from __future__ import annotations

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import hpccomm

COUNT = 2**31 + 5
MARKS = (0, 1, 2**31 - 2, 2**31 - 1, 2**31, COUNT - 1)
BACKENDS = ("mpi4py", "gloo", "hierarchical(mpi4py, gloo, by=1)", "ring(mpi4py)")


def filled(rank: int, memory: torch.Tensor) -> torch.Tensor:
    """Give a rank's bytes: zeros but for marks, and a bit of its own in each."""
    memory.zero_()
    memory[list(MARKS)] = torch.tensor([1 << rank | 0x80] * len(MARKS), dtype=torch.uint8)
    return memory


def is_right(memory: torch.Tensor, value: int) -> bool:
    """Tell whether each mark has a value and nothing else is left."""
    return memory[list(MARKS)].tolist() == [value] * len(MARKS) and int(memory.sum()) == value * len(MARKS)


def main(backends: list[str]) -> int:
    """Reduce, broadcast and send over each backend; say what came out."""
    wrong = 0
    with hpccomm.init("mpi4py", timeout_s=300) as world:
        rank, size = world.topology.rank, world.topology.world_size
        memory = torch.empty(COUNT, dtype=torch.uint8)
        for backend in backends:
            options = hpccomm.Options(backend)
            group = dist.new_group(backend="hpccomm", pg_options=options, timeout=timedelta(seconds=300))
            began, found = time.monotonic(), {}
            dist.all_reduce(filled(rank, memory), dist.ReduceOp.BOR, group=group)
            found["all_reduce"] = is_right(memory, 0x80 | (1 << size) - 1)
            dist.broadcast(filled(rank, memory), size - 1, group=group)
            found["broadcast"] = is_right(memory, 0x80 | 1 << size - 1)
            filled(rank, memory)
            if rank == 0:
                dist.send(memory, 1, group=group)
            elif rank == 1:
                dist.recv(memory, 0, group=group)
                found["recv"] = is_right(memory, 0x81)
            everyone = world.exchange.all_gather(found)
            wrong += sum(not right for of_rank in everyone for right in of_rank.values())
            if rank == 0:
                print(f"{backend}: {everyone} in {time.monotonic() - began:.0f} s", flush=True)
            dist.destroy_process_group(group)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(BACKENDS)))
