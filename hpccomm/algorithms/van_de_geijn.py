"""Van de Geijn's broadcast: scatter the buffer over a binomial tree, then gather it on all ranks around a ring.

P ranks, S bytes: ceil(log2 P) + P-1 rounds, (P-1)/P·S bytes through the root's scatter and as much sent by every rank
in the ring; about 2·S in time against log2(P)·S for the tree. For large buffers.

Source: the long-message broadcast of Thakur, Rabenseifner and Gropp (2005), after Barnett, Gupta, Payne, Shuler, van
de Geijn and Watts, "Interprocessor collective communication library" (1994).
"""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.algorithms import ring, tree
from hpccomm.schedule import Step, shares


def broadcast(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
    """Scatter equal chunks from the root, then gather them on all ranks."""
    counts = shares(size, count)
    yield from tree.scatter(rank, size, counts, root)
    yield from ring.all_gather(rank, size, counts)
