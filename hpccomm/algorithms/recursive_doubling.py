"""Recursive doubling: partners at doubling distance exchange everything they have and add.

P ranks, S bytes, P = p + x with p a power of two: log2(p) rounds of S bytes sent by each rank, the fewest rounds for
whole buffers; fast while latency rules. Both partners add the same two operands, so bits are equal. Where x > 0,
`folding` adds two rounds of S bytes.

Source: the short-message all-reduce of Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005).
"""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.algorithms.folding import folded
from hpccomm.schedule import Step


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Exchange and add with partners 1, 2, 4, … places away."""
    whole = (0, count)

    def core(member: int, power: int) -> Iterator[Step]:
        distance = 1
        while distance < power:
            yield Step(member ^ distance, whole, member ^ distance, whole, reduce=True)
            distance *= 2

    return folded(rank, size, whole, lambda _: whole, core)
