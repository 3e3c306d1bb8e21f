"""One small call of each collective on a group of all ranks, checked against a formula."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from mpi4py import MPI

SIZE, RANK = MPI.COMM_WORLD.size, MPI.COMM_WORLD.rank
RANKS = range(SIZE)
LAST = SIZE - 1

Check = Callable[[dist.ProcessGroup], None]


def all_reduce(over: dist.ProcessGroup) -> None:
    tensor = torch.arange(37.0) + RANK
    dist.all_reduce(tensor, group=over)
    assert torch.equal(tensor, SIZE * torch.arange(37.0) + sum(RANKS))


def broadcast(over: dist.ProcessGroup) -> None:
    tensor = torch.full((5,), RANK, dtype=torch.int16)
    dist.broadcast(tensor, LAST, group=over)
    assert tensor.tolist() == [LAST] * 5


def all_gather(over: dist.ProcessGroup) -> None:
    whole = torch.full((SIZE * 3,), -1.0)
    whole[3 * RANK : 3 * RANK + 3] = RANK
    dist.all_gather_into_tensor(whole, whole[3 * RANK : 3 * RANK + 3], group=over)
    assert whole.tolist() == [float(rank) for rank in RANKS for _ in range(3)]


def reduce_scatter(over: dist.ProcessGroup) -> None:
    output = torch.zeros(2, dtype=torch.bfloat16)
    dist.reduce_scatter_tensor(output, torch.arange(2.0 * SIZE).bfloat16(), group=over)
    assert output.tolist() == [SIZE * 2.0 * RANK, SIZE * (2.0 * RANK + 1)]


def reduce(over: dist.ProcessGroup) -> None:
    tensor = torch.full((3,), float(RANK))
    dist.reduce(tensor, 0, group=over)
    assert tensor.tolist() == [float(sum(RANKS) if RANK == 0 else RANK)] * 3


def gather(over: dist.ProcessGroup) -> None:
    blocks = [torch.zeros(3) for _ in RANKS] if RANK == LAST else None
    dist.gather(torch.full((3,), float(RANK)), blocks, LAST, group=over)
    assert blocks is None or [block[0] for block in blocks] == list(RANKS)


def scatter(over: dist.ProcessGroup) -> None:
    mine = torch.zeros(3)
    dist.scatter(mine, [torch.full((3,), float(rank)) for rank in RANKS] if RANK == 0 else None, 0, group=over)
    assert mine.tolist() == [float(RANK)] * 3


def all_to_all(over: dist.ProcessGroup) -> None:
    output = torch.zeros(sum(rank + 1 for rank in RANKS))
    source = torch.full((SIZE * (RANK + 1),), float(RANK))
    dist.all_to_all_single(output, source, [rank + 1 for rank in RANKS], [RANK + 1] * SIZE, group=over)
    assert output.tolist() == [float(rank) for rank in RANKS for _ in range(rank + 1)]


def barrier(over: dist.ProcessGroup) -> None:
    dist.barrier(over)


COLLECTIVES: list[Check] = [all_reduce, broadcast, all_gather, reduce_scatter, reduce, gather, scatter, all_to_all]
"""All of them that have a result."""
