"""Hierarchical: one algorithm inside the nodes, another across them, placed into one group by `embed`.

P ranks on k nodes, S bytes. By shards, where the inner algorithm serves reduce-scatter and all-gather: every node cuts
the buffer into as many shards as the smallest node has ranks, rank j of each node owns shard j, and the ranks with
equal j form rail j. Reduce-scatter inside, all-reduce on all rails at once, all-gather inside: a node of m ranks sends
2(k-1)/k·S bytes to others (with a bandwidth-optimal outer algorithm), each rank 2(m-1)/m·S inside. Ranks past the
smallest node's size own no shard. By leaders, where the inner algorithm serves reduce and broadcast instead: reduce
to the first rank of the node, all-reduce among these, broadcast inside.

Source: shards: the 2D-torus all-reduce of Mikami et al., "Massively distributed SGD" (2018); leaders: the hierarchical
all-reduce of Jia et al., "Highly scalable deep learning training system with mixed-precision" (2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from hpccomm.algorithms.algorithm import Algorithm, Counted, Levels, Rooted
from hpccomm.errors import ScheduleError
from hpccomm.schedule import Step, blocks, embed, shares

SHARD_BYTES = 2**20
"""Of a piece on each rail, where the backend of this name cuts a buffer into pieces that cross one after the other."""


class _Nodes:
    """Who is where: the ranks of every node, and the rails."""

    def __init__(self, nodes: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for rank, node in enumerate(nodes):
            groups.setdefault(node, []).append(rank)
        self.groups = list(groups.values())
        self.carriers = min(map(len, self.groups))
        self.place = {rank: (n, j) for n, ranks in enumerate(self.groups) for j, rank in enumerate(ranks)}

    def rail(self, local: int) -> list[int]:
        """List the ranks with this local rank, in node order."""
        return [ranks[local] for ranks in self.groups]

    def leaders(self, root: int) -> list[int]:
        """List one rank a node: the root on its own node, the first on the others."""
        home = self.place[root][0]
        return [root if node == home else ranks[0] for node, ranks in enumerate(self.groups)]


@lru_cache(maxsize=1)
def _nodes(nodes: tuple[int, ...]) -> _Nodes:
    return _Nodes(nodes)


def hierarchical(nodes: Sequence[int], *, intra: Algorithm, inter: Algorithm) -> Algorithm:
    """Compose an algorithm for ranks on nodes, which may differ in size and be mixed in any way.

    Args:
        nodes: Node of each rank.
        intra: Among the ranks of one node.
        inter: Across the nodes; may be hierarchical itself, over nodes in order of their first rank.

    Returns:
        All-reduce by shards or by leaders; broadcast and reduce, by leaders, where both algorithms serve them.

    Raises:
        ScheduleError: The two serve no all-reduce together.
    """
    where = _nodes(tuple(nodes))
    by_shards = _by_shards(where, intra, inter)
    all_reduce = by_shards or _by_leaders(where, intra, inter)
    name = f"hierarchical({intra.name}, {inter.name})"
    if all_reduce is None:
        raise ScheduleError(
            f"compose the algorithm {name}",
            found="no all-reduce comes of these two within one buffer",
            remedy="take an inner one with reduce_scatter and all_gather, or with reduce and broadcast, such as ring or"
            " tree, and an outer one with an all_reduce that needs no separate input",
        )
    broadcast, reduce = _broadcast(where, intra, inter), _reduce(where, intra, inter)
    levels = Levels(tuple(nodes), intra, inter) if by_shards else None
    return Algorithm(name, all_reduce=all_reduce, broadcast=broadcast, reduce=reduce, levels=levels)


def _by_shards(where: _Nodes, intra: Algorithm, inter: Algorithm) -> Counted | None:
    scatter, gather, across = intra.reduce_scatter, intra.all_gather, inter.all_reduce
    if not (scatter and gather and across) or _separate(intra, "reduce_scatter", "all_gather"):
        return None
    if _separate(inter, "all_reduce"):
        return None

    def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
        node, local = where.place[rank]
        peers = where.groups[node]
        counts = shares(where.carriers, count) + [0] * (len(peers) - where.carriers)
        yield from embed(scatter(local, len(peers), counts), peers)
        if local < where.carriers:
            start, _ = blocks(counts)[local]
            yield from embed(across(node, len(where.groups), counts[local]), where.rail(local), start)
        yield from embed(gather(local, len(peers), counts), peers)

    return all_reduce


def _by_leaders(where: _Nodes, intra: Algorithm, inter: Algorithm) -> Counted | None:
    collect, spread, across = intra.reduce, intra.broadcast, inter.all_reduce
    if not (collect and spread and across) or _separate(intra, "reduce", "broadcast"):
        return None
    if _separate(inter, "all_reduce"):
        return None

    def all_reduce(rank: int, size: int, count: int) -> Iterator[Step]:
        node, local = where.place[rank]
        peers = where.groups[node]
        yield from embed(collect(local, len(peers), count, 0), peers)
        if local == 0:
            yield from embed(across(node, len(where.groups), count), where.rail(0))
        yield from embed(spread(local, len(peers), count, 0), peers)

    return all_reduce


def _broadcast(where: _Nodes, intra: Algorithm, inter: Algorithm) -> Rooted | None:
    inside, across = intra.broadcast, inter.broadcast
    if not (inside and across) or _separate(intra, "broadcast") or _separate(inter, "broadcast"):
        return None

    def broadcast(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
        node, local = where.place[rank]
        peers, leaders = where.groups[node], where.leaders(root)
        if rank == leaders[node]:
            yield from embed(across(node, len(leaders), count, where.place[root][0]), leaders)
        yield from embed(inside(local, len(peers), count, where.place[leaders[node]][1]), peers)

    return broadcast


def _reduce(where: _Nodes, intra: Algorithm, inter: Algorithm) -> Rooted | None:
    inside, across = intra.reduce, inter.reduce
    if not (inside and across) or _separate(intra, "reduce") or _separate(inter, "reduce"):
        return None

    def reduce(rank: int, size: int, count: int, root: int) -> Iterator[Step]:
        node, local = where.place[rank]
        peers, leaders = where.groups[node], where.leaders(root)
        yield from embed(inside(local, len(peers), count, where.place[leaders[node]][1]), peers)
        if rank == leaders[node]:
            yield from embed(across(node, len(leaders), count, where.place[root][0]), leaders)

    return reduce


def _separate(algorithm: Algorithm, *collectives: str) -> bool:
    return not algorithm.separate_input.isdisjoint(collectives)
