"""What is compared: each is a call on tensors that all of them use in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from mpi4py import MPI

import hpccomm

COMM = MPI.COMM_WORLD
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


@dataclass(frozen=True)
class Memory:
    """Tensors of one size, in float32; `whole` has the size of the table, `part` one rank's share of it."""

    whole: torch.Tensor
    other: torch.Tensor
    part: torch.Tensor

    @staticmethod
    def of(size_bytes: int) -> Memory:
        """Make them; a size that the ranks cannot share evenly is rounded up."""
        count = -(-size_bytes // 4 // COMM.size) * COMM.size
        return Memory(torch.ones(count), torch.ones(count), torch.ones(count // COMM.size))


Call = Callable[[Memory], object]


def over_torch(collective: str, group: dist.ProcessGroup) -> Call:
    """Give the call over a torch group."""
    calls: dict[str, Call] = {
        "all_reduce": lambda m: dist.all_reduce(m.whole, group=group),
        "reduce_scatter": lambda m: dist.reduce_scatter_tensor(m.part, m.whole, group=group),
        "all_gather": lambda m: dist.all_gather_into_tensor(m.whole, m.part, group=group),
        "broadcast": lambda m: dist.broadcast(m.whole, 0, group=group),
        "all_to_all": lambda m: dist.all_to_all_single(m.other, m.whole, group=group),
    }
    return calls[collective]


def bare(collective: str) -> dict[str, Call]:
    """Give the MPI library's own blocking call by its name, through mpi4py on memory addresses."""
    comm = COMM.Dup()

    def at(tensor: torch.Tensor) -> list[Any]:
        return [MPI.buffer.fromaddress(tensor.data_ptr(), 4 * tensor.numel()), MPI.FLOAT]

    calls: dict[str, Call] = {
        "all_reduce": lambda m: comm.Allreduce(MPI.IN_PLACE, at(m.whole)),
        "reduce_scatter": lambda m: comm.Reduce_scatter_block(at(m.whole), at(m.part)),
        "all_gather": lambda m: comm.Allgather(at(m.part), at(m.whole)),
        "broadcast": lambda m: comm.Bcast(at(m.whole), 0),
        "all_to_all": lambda m: comm.Alltoall(at(m.whole), at(m.other)),
    }
    return {f"bare {MPI.get_vendor()[0]}": calls[collective]}


def limit(memory: Memory) -> None:
    """Move what an all-reduce must move, without any exchange: add one share of half the tensor, and copy the other."""
    half = memory.whole.numel() // 2
    memory.whole[:half].add_(memory.other[:half])
    memory.whole[half:].copy_(memory.other[half:])


def ours(collective: str, expression: str) -> Call:
    """Give the call over one of hpccomm's backends."""
    return over_torch(collective, dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(expression)))


def contenders(collective: str, expressions: list[str]) -> dict[str, Call]:
    """Give all of them by name: MPI, hpccomm's, and then Gloo, whose threads go on for a while after a call."""
    found = bare(collective) | {expression: ours(collective, expression) for expression in expressions}
    found["torch's gloo"] = over_torch(collective, dist.new_group(backend="gloo"))
    return found | ({"limit": limit} if collective == "all_reduce" else {})
