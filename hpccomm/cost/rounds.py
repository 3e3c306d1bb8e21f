"""Closed forms: an algorithm's time as a sum over rounds, for numbers of ranks at which simulation takes too long.

A round is one message a sender, all at once, and lasts as long as its slowest message. On uniform fabrics the sums
equal the simulation where all blocks are equal and the number of ranks is a power of two, or any number for naive,
direct, pairwise and ring. Elsewhere they estimate it, mostly from above, as rounds then overlap: by up to a third on
uniform fabrics, by less than a factor of two where links differ.

In the formulas P is the number of ranks, p the largest power of two in it, S the total of bytes, T(n) = alpha + n·beta
the time of a message and G(n) = n·gamma that of a reduction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from hpccomm.algorithms.folding import members
from hpccomm.cost.traffic import Traffic, ahead, at_once, one_by_one, to_all, to_next, to_partners


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that are sent at the same time, and what their receivers add.

    Attributes:
        nbytes: Bytes of each message.
        traffic: Who sends to whom; several rounds alike in all else may be one.
        reduces: Whether receivers reduce what they get.
        times: How often it is repeated.
        overlaps: Whether the next message travels while this one is reduced.
    """

    nbytes: float
    traffic: Traffic
    reduces: bool = False
    times: int = 1
    overlaps: bool = False


Rounds = Iterator[Round]


def naive_all_reduce(size: int, nbytes: float) -> Rounds:
    """T(S) + G(S) + (P-2)·max(T(S), G(S)) + (P-1)·T(S)."""
    yield from naive_reduce(size, nbytes)
    yield from naive_spread(size, nbytes)


def naive_reduce(size: int, nbytes: float) -> Rounds:
    """T(S) + G(S) + (P-2)·max(T(S), G(S))."""
    peers = [(peer, 0) for peer in range(1, size)]
    yield Round(nbytes, one_by_one(peers[:1]), reduces=True)
    yield Round(nbytes, one_by_one(peers[1:]), reduces=True, overlaps=True)


def naive_gather(size: int, nbytes: float) -> Rounds:
    """(P-1)·T(S/P)."""
    yield Round(nbytes / size, one_by_one((peer, 0) for peer in range(1, size)))


def naive_spread(size: int, nbytes: float) -> Rounds:
    """(P-1)·T(S)."""
    yield Round(nbytes, one_by_one((0, peer) for peer in range(1, size)))


def direct_all_reduce(size: int, nbytes: float) -> Rounds:
    """(P-1)·(T(S) + G(S))."""
    yield Round(nbytes, to_all, reduces=True)


def pairwise_all_reduce(size: int, nbytes: float) -> Rounds:
    """(P-1)·(2·T(S/P) + G(S/P))."""
    yield from pairwise_blocks(size, nbytes, reduces=True)
    yield from pairwise_blocks(size, nbytes)


def pairwise_blocks(size: int, nbytes: float, *, reduces: bool = False) -> Rounds:
    """(P-1)·T(S/P), and G(S/P) as often where they are reduced."""
    yield Round(nbytes / size, to_all, reduces)


def ring_all_reduce(size: int, nbytes: float) -> Rounds:
    """(P-1)·(2·T(S/P) + G(S/P))."""
    yield from ring_blocks(size, nbytes, reduces=True)
    yield from ring_blocks(size, nbytes)


def ring_blocks(size: int, nbytes: float, *, reduces: bool = False) -> Rounds:
    """(P-1)·T(S/P), and G(S/P) as often where they are reduced."""
    yield Round(nbytes / size, to_next, reduces, times=size - 1)


def tree_all_reduce(size: int, nbytes: float) -> Rounds:
    """ceil(log2 P)·(2·T(S) + G(S))."""
    yield from tree_reduce(size, nbytes)
    yield from tree_broadcast(size, nbytes)


def tree_reduce(size: int, nbytes: float) -> Rounds:
    """ceil(log2 P)·(T(S) + G(S))."""
    for reach in _reaches(size):
        yield Round(nbytes, _to_parents(reach, size), reduces=True)


def tree_broadcast(size: int, nbytes: float) -> Rounds:
    """ceil(log2 P)·T(S)."""
    for reach in _reaches(size):
        yield Round(nbytes, _to_children(reach, size))


def tree_gather(size: int, nbytes: float) -> Rounds:
    """T(S/P) + T(2·S/P) + … + T(S/2)."""
    for reach in _reaches(size):
        yield Round(nbytes * min(reach, size - reach) / size, _to_parents(reach, size))


def tree_scatter(size: int, nbytes: float) -> Rounds:
    """T(S/2) + T(S/4) + … + T(S/P)."""
    for reach in _reaches(size):
        yield Round(nbytes * min(reach, size - reach) / size, _to_children(reach, size))


def recursive_doubling_all_reduce(size: int, nbytes: float) -> Rounds:
    """log2(p)·(T(S) + G(S)), and 2·T(S) + G(S) more where ranks are folded."""
    yield from _fold(size, nbytes, reduces=True)
    for reach in _reaches(len(members(size))):
        yield Round(nbytes, _to_partners(size, reach), reduces=True)
    yield from _unfold(size, nbytes)


def halving_all_reduce(size: int, nbytes: float) -> Rounds:
    """2·(T(S/2) + T(S/4) + … + T(S/p)) + G((p-1)/p·S), and 2·T(S) + G(S) more where ranks are folded."""
    yield from _fold(size, nbytes, reduces=True)
    yield from _halves(size, nbytes, reduces=True)
    yield from _halves(size, nbytes)
    yield from _unfold(size, nbytes)


def halving_reduce_scatter(size: int, nbytes: float) -> Rounds:
    """T(S/2) + T(S/4) + … + T(S/p) + G((p-1)/p·S), and T(S) + G(S) + T(S/P) more where ranks are folded."""
    yield from _fold(size, nbytes, reduces=True)
    yield from _halves(size, nbytes, extra=size - len(members(size)), reduces=True)
    yield from _unfold(size, nbytes / size)


def doubling_all_gather(size: int, nbytes: float) -> Rounds:
    """T(S/p) + … + T(S/4) + T(S/2), and T(S/P) + T(S) more where ranks are folded."""
    yield from _fold(size, nbytes / size)
    yield from _halves(size, nbytes, extra=size - len(members(size)))
    yield from _unfold(size, nbytes)


def van_de_geijn_broadcast(size: int, nbytes: float) -> Rounds:
    """T(S/2) + T(S/4) + … + T(S/P) + (P-1)·T(S/P)."""
    yield from tree_scatter(size, nbytes)
    yield from ring_blocks(size, nbytes)


def dissemination_barrier(size: int, nbytes: float) -> Rounds:
    """ceil(log2 P)·T(S), with one element for S."""
    for reach in _reaches(size):
        yield Round(nbytes, ahead(reach))


CLOSED_FORMS: dict[tuple[str, str], Callable[[int, float], Iterable[Round]]] = {
    ("naive", "all_reduce"): naive_all_reduce,
    ("naive", "broadcast"): naive_spread,
    ("naive", "reduce"): naive_reduce,
    ("naive", "gather"): naive_gather,
    ("naive", "scatter"): lambda size, nbytes: naive_spread(size, nbytes / size),
    ("direct", "all_reduce"): direct_all_reduce,
    ("pairwise", "all_reduce"): pairwise_all_reduce,
    ("pairwise", "reduce_scatter"): lambda size, nbytes: pairwise_blocks(size, nbytes, reduces=True),
    ("pairwise", "all_gather"): pairwise_blocks,
    ("pairwise", "all_to_all"): pairwise_blocks,
    ("tree", "all_reduce"): tree_all_reduce,
    ("tree", "broadcast"): tree_broadcast,
    ("tree", "reduce"): tree_reduce,
    ("tree", "gather"): tree_gather,
    ("tree", "scatter"): tree_scatter,
    ("ring", "all_reduce"): ring_all_reduce,
    ("ring", "reduce_scatter"): lambda size, nbytes: ring_blocks(size, nbytes, reduces=True),
    ("ring", "all_gather"): ring_blocks,
    ("halving_doubling", "all_reduce"): halving_all_reduce,
    ("halving_doubling", "reduce_scatter"): halving_reduce_scatter,
    ("halving_doubling", "all_gather"): doubling_all_gather,
    ("recursive_doubling", "all_reduce"): recursive_doubling_all_reduce,
    ("van_de_geijn", "broadcast"): van_de_geijn_broadcast,
    ("dissemination", "barrier"): dissemination_barrier,
}
"""Rounds of (algorithm, collective), called with the number of ranks and all bytes, or those of a barrier's element."""


def _reaches(size: int) -> list[int]:
    """List 1, 2, 4, … below `size`."""
    return [1 << bit for bit in range((size - 1).bit_length())]


def _to_parents(reach: int, size: int) -> Traffic:
    return at_once(lambda: ((child, child - reach) for child in range(reach, size, 2 * reach)))


def _to_children(reach: int, size: int) -> Traffic:
    return at_once(lambda: ((child - reach, child) for child in range(reach, size, 2 * reach)))


@lru_cache(maxsize=32)
def _to_partners(size: int, reach: int) -> Traffic:
    return to_partners(reach, lambda: members(size))


def _fold(size: int, nbytes: float, *, reduces: bool = False) -> Rounds:
    pairs = 2 * (size - len(members(size)))
    if pairs:
        yield Round(nbytes, at_once(lambda: ((rank, rank - 1) for rank in range(1, pairs, 2))), reduces)


def _unfold(size: int, nbytes: float) -> Rounds:
    pairs = 2 * (size - len(members(size)))
    if pairs:
        yield Round(nbytes, at_once(lambda: ((rank, rank + 1) for rank in range(0, pairs, 2))))


def _halves(size: int, nbytes: float, *, extra: int = 0, reduces: bool = False) -> Rounds:
    """Exchange ever larger runs of members' blocks; those of the first `extra` members count twice."""
    power = len(members(size))
    for reach in _reaches(power):
        largest = (reach + min(reach, extra)) / (power + extra)
        yield Round(nbytes * largest, _to_partners(size, reach), reduces)
