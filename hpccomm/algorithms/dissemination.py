"""Dissemination barrier: in round k every rank tells the one 2**k places ahead that it, and all it heard of, are there.

P ranks: ceil(log2 P) rounds of one element.

Source: Hensgen, Finkel and Manber, "Two algorithms for barrier synchronization" (1988).
"""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.schedule import Step


def barrier(rank: int, size: int) -> Iterator[Step]:
    """Send the one element of a separate input ahead, and receive one from behind."""
    distance = 1
    while distance < size:
        yield Step((rank + distance) % size, (0, 1), (rank - distance) % size, (0, 1))
        distance *= 2
