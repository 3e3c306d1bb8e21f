"""Adasum: gradients of different nodes combined by how much they say the same.

No annotations are put off here: DDP compares those of a hook with its own.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from hpccomm.backends.c10d import GradBucket
from hpccomm.training.compression import Hook

_HALVES = (torch.float16, torch.bfloat16)


def adasum(intra_node: dist.ProcessGroup, inter_node: dist.ProcessGroup, *, average_inside: bool = False) -> Hook:
    """Make a DDP hook that adds gradients up inside nodes and combines the nodes' sums by Adasum.

    Two gradients a and b become

        Adasum(a, b) = (1 - a·b / (2 a·a)) a + (1 - a·b / (2 b·b)) b,

    their sum where they are orthogonal, their mean where they are equal, and b where a is zero. More than two are
    combined in pairs, and the results again: nodes 0 and 1, 2 and 3, ..., then (0, 1) and (2, 3), ...; where their
    number is no power of two, what finds no partner goes on as it is. The result depends on the pairs, but not on the
    order within a pair or of two halves. Each parameter is combined by itself, so that buckets' sizes do not matter;
    dot products are those of float64, 16-bit floats are handled in float32. All ranks get the same bits.

    Nothing is divided by the number of ranks: on one node, what comes out is the sum, or with `average_inside` the
    mean. Complex gradients are pairs of real numbers here.

    Cost for N nodes of P ranks and S bytes: a reduce and a broadcast of S in each node, and on the way between nodes
    ceil(log2 N) messages of S and a broadcast, one after the other; the paper's vector halving sends 2S(N-1)/N. It
    runs inside the hook, so that backward waits for it.

    Source: Maleki, Musuvathi, Mytkowicz, Saarikivi, Xu, Eksarevskiy, Ekanayake, Barsoum, "Scaling Distributed Training
    with Adaptive Summation" (2020).

    Register it as ``ddp.register_comm_hook(None, adasum(world.intra_node, world.inter_node))``; the state is not used.

    Args:
        intra_node: The ranks of this node.
        inter_node: This rank's peers on other nodes; only those of rank 0 of each node are used.
        average_inside: Whether to average inside nodes.
    """
    inside = dist.ReduceOp.AVG if average_inside else dist.ReduceOp.SUM

    def adaptive(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        buffer = bucket.buffer()
        work = buffer.float() if buffer.dtype in _HALVES else buffer
        dist.reduce(work, op=inside, group=intra_node, group_dst=0)
        if dist.get_rank(intra_node) == 0:
            sizes = [one.numel() * (1 + one.is_complex()) for one in bucket.parameters()]  # as DDP lays them out
            combine_all(work, inter_node, sizes)
        dist.broadcast(work, group=intra_node, group_src=0)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(buffer.copy_(work))
        return done

    return adaptive


def combine_all(gradient: torch.Tensor, group: dist.ProcessGroup, sizes: Sequence[int]) -> None:
    """Combine the gradients of a group's ranks, in place; collective.

    Args:
        gradient: One dimension, float32 or float64.
        group: The ranks, whose order makes the pairs.
        sizes: Elements of each of the gradient's parts, which are combined by themselves.
    """
    rank, size, distance = dist.get_rank(group), dist.get_world_size(group), 1
    while distance < size and rank % (2 * distance) == 0:
        if rank + distance < size:
            other = torch.empty_like(gradient)
            dist.recv(other, group=group, group_src=rank + distance)
            gradient.copy_(combined(gradient, other, sizes))
        distance *= 2
    if rank:
        dist.send(gradient, group=group, group_dst=rank - (rank & -rank))
    dist.broadcast(gradient, group=group, group_src=0)


def combined(one: torch.Tensor, other: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Give Adasum of two gradients of one dimension, part by part."""
    parts = zip(torch.split(one, list(sizes)), torch.split(other, list(sizes)), strict=True)
    return torch.cat([_pair(a, b) for a, b in parts])


def _pair(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    a, b = one.double(), other.double()
    dot = a.dot(b)
    return (_share(dot, a) * a + _share(dot, b) * b).to(one.dtype)


def _share(dot: torch.Tensor, of: torch.Tensor) -> torch.Tensor:
    square = of.dot(of)
    return torch.where(square == 0, 1.0, 1 - dot / (2 * square))
