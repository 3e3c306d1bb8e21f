"""Pairwise exchange: in round d every rank sends to the rank d places ahead and receives from the one d behind.

P ranks, S bytes. Reduce-scatter, all-gather and all-to-all (S bytes a rank): P-1 rounds, (P-1)/P·S bytes sent by each
rank, every block straight to where it belongs. All-reduce in two shots, reduce-scatter and then all-gather: 2(P-1)
rounds, 2(P-1)/P·S bytes, like `ring`, but no block waits for the one before, and uneven or empty blocks cost only
their own length. The ring's neighbours are nearer on most networks.

Source: the long-message algorithms of Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (2005).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpccomm.schedule import Step, blocks, shares


def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
    """Add each chunk at the rank that owns it, which sends the sum to all."""
    counts = shares(size, count)
    yield from reduce_scatter(rank, size, counts)
    yield from all_gather(rank, size, counts)


def reduce_scatter(rank: int, size: int, counts: Sequence[int]) -> Iterator[Step]:
    """Send each rank its block, and add to the own block what the others send."""
    places = blocks(counts)
    for distance in range(1, size):
        dest, source = (rank + distance) % size, (rank - distance) % size
        yield Step(dest, places[dest], source, places[rank], reduce=True)


def all_gather(rank: int, size: int, counts: Sequence[int]) -> Iterator[Step]:
    """Send the own block to every rank."""
    places = blocks(counts)
    for distance in range(1, size):
        dest, source = (rank + distance) % size, (rank - distance) % size
        yield Step(dest, places[rank], source, places[source])


def all_to_all(rank: int, size: int, sent: Sequence[int], received: Sequence[int]) -> Iterator[Step]:
    """Copy the own block, then exchange; sends read a separate input."""
    outgoing, incoming = blocks(sent), blocks(received)
    for distance in range(size):
        dest, source = (rank + distance) % size, (rank - distance) % size
        yield Step(dest, outgoing[dest], source, incoming[source])
