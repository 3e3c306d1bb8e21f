"""Run every reduction and movement on inputs given by formulas, and write digests of what came out on each rank.

bits.py FILE BACKEND…: the first backend over all ranks and over all but the last, with all operators; the others over
all ranks, with sums alone, as their reductions are made of the same parts. Results of whole numbers must not depend on
the MPI; those of real numbers, whose sums depend on their order, must be the same when the same MPI runs them again.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import ReduceOp

import hpccomm

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from reference import COMPLEX, DTYPES, FLOATS, OPS, Op, has_meaning, integers, reals

NARROW = (torch.float8_e4m3fn, torch.float8_e5m2)
COUNT = 1000  # of some dtypes above, of others below what is sent by a polled non-blocking call
REAL_COUNTS = (100, 60000)
REPEATS = 3
ROUNDING = (ReduceOp.SUM, ReduceOp.PRODUCT, ReduceOp.AVG)

Group = Any


def all_reduce(data: torch.Tensor, op: Op, group: Group) -> torch.Tensor:
    dist.all_reduce(data, op, group=group)
    return data


def reduce(data: torch.Tensor, op: Op, group: Group) -> torch.Tensor:
    root = dist.get_world_size(group) - 1
    dist.reduce(data, root, op, group=group)
    return data if dist.get_rank(group) == root else data[:0]


def reduce_scatter(data: torch.Tensor, op: Op, group: Group) -> torch.Tensor:
    size = dist.get_world_size(group)
    share = data.numel() // size
    output = torch.zeros(share, dtype=data.dtype)
    dist.reduce_scatter_tensor(output, data[: share * size], op, group=group)
    return output


def broadcast(data: torch.Tensor, group: Group) -> torch.Tensor:
    dist.broadcast(data, dist.get_world_size(group) - 1, group=group)
    return data


def all_gather(data: torch.Tensor, group: Group) -> torch.Tensor:
    output = torch.zeros(data.numel() * dist.get_world_size(group), dtype=data.dtype)
    dist.all_gather_into_tensor(output, data, group=group)
    return output


def gather(data: torch.Tensor, group: Group) -> torch.Tensor:
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    blocks = [torch.zeros_like(data) for _ in range(size)] if rank == 0 else None
    dist.gather(data, blocks, 0, group=group)
    return torch.stack(blocks) if blocks else data[:0]


def scatter(data: torch.Tensor, group: Group) -> torch.Tensor:
    size = dist.get_world_size(group)
    share = data.numel() // size
    output = torch.zeros(share, dtype=data.dtype)
    blocks = list(data[: share * size].split(share)) if dist.get_rank(group) == 0 else None
    dist.scatter(output, blocks, 0, group=group)
    return output


def all_to_all(data: torch.Tensor, group: Group) -> torch.Tensor:
    size = dist.get_world_size(group)
    source = data[: data.numel() // size * size]
    output = torch.zeros_like(source)
    dist.all_to_all_single(output, source, group=group)
    return output


REDUCTIONS = (all_reduce, reduce, reduce_scatter)
MOVEMENTS = (broadcast, all_gather, gather, scatter, all_to_all)


def digest(data: torch.Tensor) -> str:
    """Give a short digest of a tensor's bytes."""
    return hashlib.blake2b(data.contiguous().view(-1).view(torch.uint8).numpy(), digest_size=6).hexdigest()


def of_integers(group: Group, ops: Sequence[Op]) -> Iterator[tuple[str, str]]:
    """Call everything that has a meaning on whole numbers."""
    rank = dist.get_rank(group)
    for dtype in (*DTYPES, *NARROW):
        for op in (op for op in ops if has_meaning(op, dtype)):
            for call in REDUCTIONS:
                yield f"{call.__name__} {dtype} {op.name}", digest(call(integers(rank, COUNT, dtype), op, group))
        for move in MOVEMENTS:
            yield f"{move.__name__} {dtype}", digest(move(integers(rank, COUNT, dtype), group))


def of_reals(group: Group, ops: Sequence[Op]) -> Iterator[tuple[str, str]]:
    """Call what rounds several times over, and name all results that came out where there is more than one."""
    rank = dist.get_rank(group)
    for dtype in (*FLOATS, *COMPLEX):
        for op in (op for op in ops if op in ROUNDING and has_meaning(op, dtype)):
            for call in REDUCTIONS:
                for count in REAL_COUNTS:
                    data = real(rank, count, dtype)
                    found = {digest(call(data.clone(), op, group)) for _ in range(REPEATS)}
                    yield f"{call.__name__} {dtype} {op.name} of {count}", " or ".join(sorted(found))


def real(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Give random input whose sums depend on their order."""
    if not dtype.is_complex:
        return reals(rank, count, dtype)
    return torch.complex(reals(rank, count, torch.float64), reals(rank + 8, count, torch.float64)).to(dtype)


def main() -> None:
    """Write {kind: {call: [digest of each rank]}} from rank 0."""
    file, *backends = sys.argv[1:]
    found: dict[str, dict[str, str]] = {"integers": {}, "reals": {}}
    with hpccomm.init("mpi4py", timeout_s=120) as world:
        rank, size = world.topology.rank, world.topology.world_size
        for backend in backends:
            sizes, ops = ((size, size - 1), OPS) if backend == backends[0] else ((size,), (ReduceOp.SUM,))
            for members in sizes:
                ranks = list(range(members))
                group = dist.new_group(ranks, backend="hpccomm", pg_options=hpccomm.Options(backend))
                for kind, calls in (("integers", of_integers), ("reals", of_reals)) if rank in ranks else ():
                    found[kind] |= {f"{backend} on {members}: {name}": one for name, one in calls(group, ops)}
        everyone = world.exchange.all_gather(found)
    if rank == 0:
        names = {kind: list(rows) for kind, rows in found.items()}
        joined = {kind: {name: [one[kind].get(name) for one in everyone] for name in names[kind]} for kind in names}
        Path(file).write_text(json.dumps(joined, indent=0))


main()
