"""Draw a case from the seed and its number."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import torch
from torch.distributed import ReduceOp

from fuzz.case import Case, Part
from fuzz.kinds import COLLECTIVES, Kind
from fuzz.layouts import LAZY, OVERLAPPING, layouts_of
from reference import COMPLEX, FLOAT8, FLOATS, INTEGERS, OPS, has_meaning

EXPRESSIONS = (
    "mpi4py",
    "gloo",
    "hierarchical(mpi4py, gloo)",
    "hierarchical(gloo, mpi4py)",
    "ring(mpi4py)",
    "tree(gloo)",
    "direct(mpi4py)",
    "direct(gloo, shots=2)",
    "halving_doubling(mpi4py)",
    "pairwise(mpi4py)",
    "recursive_doubling(mpi4py)",
    "van_de_geijn(mpi4py)",
    "naive(gloo)",
    "dissemination(mpi4py)",
    "checked(mpi4py)",
    "mpi4py(deadline=strict)",
    "gloo(accumulate=float32)",
    "hierarchical(mpi4py, hierarchical(mpi4py, gloo, by=1))",
    "hierarchical(ring(mpi4py), gloo, by=2)",
    "hierarchical(mpi4py(deadline=strict), hierarchical(gloo, tree(mpi4py), by=1))",
    "checked(hierarchical(mpi4py, hierarchical(gloo, mpi4py, by=2), by=1))",
    "shm",
    "shm(crossover=1)",
    "hierarchical(shm(crossover=1), gloo)",
    "failover(mpi4py, gloo)",
    "failover(hierarchical(mpi4py, gloo), gloo, verify=false)",
)
DTYPES = (*FLOATS, *FLOAT8, *INTEGERS, torch.bool, *COMPLEX)
ALL_OPS = (*OPS, ReduceOp.PREMUL_SUM)
COUNTS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 24, 36, 63, 64, 100, 257, 1000, 1023, 2048, 4099)
LARGE = 200_000
LIMITS = (7, 64, 1000)
PIECES = 30  # at most, into which a limit cuts a tensor
WAITS = ("wait", "wait", "timeout", "poll", "future")


def draw(seed: int, number: int, nodes: Sequence[str], expressions: Sequence[str] = EXPRESSIONS) -> Case:
    """Draw a case; every rank draws the same one.

    Args:
        seed: Of the run.
        number: Of the case.
        nodes: The placements to choose from.
        expressions: The backends to choose from.
    """
    of = random.Random(f"{seed} {number}")
    where, expression = of.choice(nodes), of.choice(expressions)
    limit = of.choice(LIMITS) if of.random() < 0.2 else None
    asynchronous = of.random() < 0.4
    count = of.randint(2, 4) if of.random() < (0.5 if asynchronous else 0.1) else 1
    kinds = [kind for kind in COLLECTIVES.values() if not (kind.of_any_rank and "hierarchical" in expression)]
    parts = [_part(of, of.choice(kinds), len(where), limit) for _ in range(count)]
    order = tuple(of.sample(range(count), count)) if asynchronous else ()
    return Case(number, where, expression, limit, tuple(parts), order, of.choice(WAITS))


def _part(of: random.Random, kind: Kind, size: int, limit: int | None) -> Part:
    dtype, op = of.choice(DTYPES), of.choice(ALL_OPS)
    if kind.reduces and not has_meaning(op, dtype) and of.random() < 0.7:  # what is refused is tried less often
        op = ReduceOp.SUM
    elements = of.choice(COUNTS) if of.random() > 0.02 else LARGE
    if limit is not None:
        elements = min(elements, PIECES * max(1, limit // size // (1 if kind.reduces else dtype.itemsize)))
    shape = _shape(of, elements)
    written, read = _layouts(of, kind, dtype, size), _layouts(of, None, dtype, size)
    lazy = any(layout in LAZY for layout in (*written, *read))
    refused = kind.reduces and not has_meaning(op, dtype)
    values = "exact" if kind.reduces or lazy or kind.name == "chain" else "bits"
    if kind.reduces and not refused and dtype.is_floating_point | dtype.is_complex and of.random() < 0.4:
        values = "normal"
    direct = of.random() < 0.3 or lazy or refused
    return Part(kind.name, dtype, op, values, shape, written, read, of.randrange(size), direct, of.randrange(1_000_000))


def _layouts(of: random.Random, kind: Kind | None, dtype: torch.dtype, size: int) -> tuple[str, ...]:
    """Draw the layouts on all ranks: mostly the same, else another one on one rank or on all."""
    names = layouts_of(dtype)
    if kind is not None and kind.refuses_overlap and of.random() < 0.06:
        return (OVERLAPPING,) * size
    chance = of.random()
    if chance < 0.15:
        return tuple(of.choice(names) for _ in range(size))
    common = "dense" if chance < 0.45 else of.choice(names)
    odd = of.randrange(size) if chance > 0.85 else size
    return tuple("transposed" if rank == odd else common for rank in range(size))


def _shape(of: random.Random, elements: int) -> tuple[int, ...]:
    """Draw a shape of so many elements, at most three dimensions."""
    chance = of.random()
    if elements == 1 and chance < 0.4:
        return ()
    if chance < 0.5:
        return (elements,)
    if elements == 0:
        return of.choice([(0, 3), (3, 0), (2, 0, 2)])
    rows = of.choice([a for a in range(1, min(elements, 64) + 1) if elements % a == 0])
    if chance < 0.8:
        return (rows, elements // rows)
    columns = math.gcd(elements // rows, 6)
    return (rows, columns, elements // rows // columns)
