"""Check `auto` and the backends that the arguments name against formulas, and print what came out as a line of JSON.

The keys: `topology` in words; the `hostnames` of the ranks; `listens`, the addresses that each rank listens on because
of hpccomm; and `checked`, the backends whose results were right on all ranks.
"""

from __future__ import annotations

import json
import socket
import sys
import warnings

import psutil
import torch
import torch.distributed as dist
from mpi4py import MPI

import hpccomm
import reference

COUNT = 1003
warnings.filterwarnings("ignore", category=FutureWarning)  # torch 2.14 renames what 2.11 does not have under a new name


def listening() -> set[tuple[str, int]]:
    """Give the addresses and ports that this process listens on."""
    found = psutil.Process().net_connections("tcp")
    return {(one.laddr.ip, one.laddr.port) for one in found if one.status == psutil.CONN_LISTEN}


def equal(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Compare exact results."""
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=0, atol=0)


def check_reductions(group: dist.ProcessGroup, ranks: list[int], me: int) -> None:
    """Check all_reduce and reduce_scatter."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        inputs = [reference.integers(rank, COUNT, dtype) for rank in ranks]
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX):
            tensor = inputs[me].clone()
            dist.all_reduce(tensor, op, group=group)
            equal(tensor, reference.reduced(op, inputs))
    inputs = [reference.integers(rank, COUNT * len(ranks), torch.float32) for rank in ranks]
    output = torch.empty(COUNT)
    dist.reduce_scatter_tensor(output, inputs[me], group=group)
    equal(output, reference.reduced(dist.ReduceOp.SUM, inputs)[me * COUNT : (me + 1) * COUNT])
    inputs = [reference.reals(rank, COUNT, torch.float64) for rank in ranks]
    tensor = inputs[me].clone()
    dist.all_reduce(tensor, dist.ReduceOp.AVG, group=group)
    error = (tensor - reference.reduced(dist.ReduceOp.AVG, inputs)).abs()
    assert bool((error <= reference.bound(inputs)).all()), error.max()


def check_copies(group: dist.ProcessGroup, ranks: list[int], me: int) -> None:
    """Check broadcast from every rank, all_gather, and a ring of send and recv."""
    inputs = [reference.integers(rank, COUNT, torch.int32) for rank in ranks]
    for place, root in enumerate(ranks):
        tensor = inputs[me].clone()
        dist.broadcast(tensor, root, group=group)
        equal(tensor, inputs[place])
    gathered = torch.empty(COUNT * len(ranks), dtype=torch.int32)
    dist.all_gather_into_tensor(gathered, inputs[me], group=group)
    equal(gathered, torch.cat(inputs))
    if len(ranks) > 1:
        after, before = (me + 1) % len(ranks), me - 1
        tensor = torch.empty(COUNT, dtype=torch.int32)
        request = dist.isend(inputs[me], ranks[after], group=group)
        dist.recv(tensor, ranks[before], group=group)
        assert request is not None
        request.wait()
        equal(tensor, inputs[before])


def check(group: dist.ProcessGroup) -> None:
    """Check a group's collectives."""
    ranks = dist.get_process_group_ranks(group)
    me = dist.get_rank(group)
    check_reductions(group, ranks, me)
    check_copies(group, ranks, me)
    dist.barrier(group=group)


def main(backends: list[str]) -> None:
    """Check the world's groups and one group a backend."""
    assert MPI.Is_initialized()  # what MPI listens on stands
    before, checked = listening(), ["auto"]
    with hpccomm.init("auto", timeout_s=60) as world:
        check(world.group)
        for legs in (world.intra_node, world.inter_node):
            check_reductions(legs, dist.get_process_group_ranks(legs), dist.get_rank(legs))
        for backend in backends:
            group = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(backend))
            assert isinstance(group, dist.ProcessGroup)
            check(group)
            checked.append(backend)
        listens = sorted({address for address, _ in listening() - before})
        everyone = world.exchange.all_gather((socket.gethostname(), listens))
        hostnames, listens_of = zip(*everyone, strict=True)
        said = {"topology": str(world.topology), "hostnames": hostnames, "listens": listens_of, "checked": checked}
        if world.topology.rank == 0:
            print(json.dumps(said), flush=True)


main(sys.argv[1:])
