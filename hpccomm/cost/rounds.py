"""Closed forms: an algorithm's time as a sum over rounds, for numbers of ranks at which simulation takes too long.

A round is one message a sender, all at once, and lasts as long as its slowest message. On uniform fabrics the sums
equal the simulation where all blocks are equal and the number of ranks is a power of two, or any number for naive,
direct, pairwise and ring. Elsewhere they estimate it, mostly from above, as rounds then overlap: by up to a third on
uniform fabrics, by less than a factor of two where links differ.

In the formulas P is the number of ranks, p the largest power of two in it, S the total of bytes, T(n) = alpha + n·beta
the time of a message and G(n) = n·gamma that of a reduction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from hpccomm.algorithms.folding import members
from hpccomm.cost.fabric import Fabric


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that are sent at the same time, and what their receivers add.

    Attributes:
        nbytes: Bytes of each message.
        dest: Gives the rank to which a rank sends, -1 for none.
        reduces: Whether receivers reduce what they get.
        times: How often the round is repeated.
        overlaps: Whether the next message travels while this one is reduced.
    """

    nbytes: float
    dest: Callable[[int], int]
    reduces: bool = False
    times: int = 1
    overlaps: bool = False

    def seconds(self, fabric: Fabric) -> float:
        """Give the time of all repetitions."""
        transfer = fabric.intra.seconds(self.nbytes) if fabric.is_uniform else self._slowest(fabric)
        reduction = self.nbytes * fabric.gamma_s_per_byte if self.reduces else 0.0
        return self.times * (max(transfer, reduction) if self.overlaps else transfer + reduction)

    def _slowest(self, fabric: Fabric) -> float:
        nodes = fabric.nodes
        pairs = [(nodes[rank], nodes[peer]) for rank in range(fabric.size) if (peer := self.dest(rank)) >= 0]
        leaving = Counter(source for source, dest in pairs if source != dest)
        inside = fabric.intra.seconds(self.nbytes) if leaving.total() < len(pairs) else 0.0
        if not leaving:
            return inside
        injected = max(leaving.values()) * self.nbytes / fabric.injection_bytes_per_s
        return max(inside, fabric.inter.seconds(self.nbytes), fabric.inter.alpha_s + injected)


Rounds = Iterator[Round]


def naive_all_reduce(size: int, nbytes: float) -> Rounds:
    """T(S) + G(S) + (P-2)·max(T(S), G(S)) + (P-1)·T(S)."""
    for peer in range(1, size):
        yield Round(nbytes, _only(peer, 0), reduces=True, overlaps=peer > 1)
    for peer in range(1, size):
        yield Round(nbytes, _only(0, peer))


def direct_all_reduce(size: int, nbytes: float) -> Rounds:
    """(P-1)·(T(S) + G(S))."""
    return _cyclic(size, nbytes, reduces=True)


def pairwise_all_reduce(size: int, nbytes: float) -> Rounds:
    """(P-1)·(2·T(S/P) + G(S/P))."""
    yield from pairwise_blocks(size, nbytes, reduces=True)
    yield from pairwise_blocks(size, nbytes)


def pairwise_blocks(size: int, nbytes: float, *, reduces: bool = False) -> Rounds:
    """(P-1)·T(S/P), and G(S/P) as often where they are reduced."""
    return _cyclic(size, nbytes / size, reduces=reduces)


def ring_all_reduce(size: int, nbytes: float) -> Rounds:
    """(P-1)·(2·T(S/P) + G(S/P))."""
    yield from ring_blocks(size, nbytes, reduces=True)
    yield from ring_blocks(size, nbytes)


def ring_blocks(size: int, nbytes: float, *, reduces: bool = False) -> Rounds:
    """(P-1)·T(S/P), and G(S/P) as often where they are reduced."""
    yield Round(nbytes / size, lambda rank: (rank + 1) % size, reduces, times=size - 1)


def tree_all_reduce(size: int, nbytes: float) -> Rounds:
    """ceil(log2 P)·(2·T(S) + G(S))."""
    for reach in _reaches(size):
        yield Round(nbytes, _to_parent(reach), reduces=True)
        yield Round(nbytes, _to_child(reach, size))


def recursive_doubling_all_reduce(size: int, nbytes: float) -> Rounds:
    """log2(p)·(T(S) + G(S)), and 2·T(S) + G(S) more where ranks are folded."""
    yield from _fold(size, nbytes, reduces=True)
    for reach in _reaches(len(members(size))):
        yield Round(nbytes, _to_partner(size, reach), reduces=True)
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
    for reach in _reaches(size):
        yield Round(nbytes * min(reach, size - reach) / size, _to_child(reach, size))
    yield from ring_blocks(size, nbytes)


CLOSED_FORMS: dict[tuple[str, str], Callable[[int, float], Iterable[Round]]] = {
    ("naive", "all_reduce"): naive_all_reduce,
    ("direct", "all_reduce"): direct_all_reduce,
    ("pairwise", "all_reduce"): pairwise_all_reduce,
    ("pairwise", "reduce_scatter"): lambda size, nbytes: pairwise_blocks(size, nbytes, reduces=True),
    ("pairwise", "all_gather"): pairwise_blocks,
    ("pairwise", "all_to_all"): pairwise_blocks,
    ("tree", "all_reduce"): tree_all_reduce,
    ("ring", "all_reduce"): ring_all_reduce,
    ("ring", "reduce_scatter"): lambda size, nbytes: ring_blocks(size, nbytes, reduces=True),
    ("ring", "all_gather"): ring_blocks,
    ("halving_doubling", "all_reduce"): halving_all_reduce,
    ("halving_doubling", "reduce_scatter"): halving_reduce_scatter,
    ("halving_doubling", "all_gather"): doubling_all_gather,
    ("recursive_doubling", "all_reduce"): recursive_doubling_all_reduce,
    ("van_de_geijn", "broadcast"): van_de_geijn_broadcast,
}
"""Rounds of (algorithm, collective), called with the number of ranks and the total of bytes."""


def _reaches(size: int) -> list[int]:
    """List 1, 2, 4, … below `size`."""
    return [1 << bit for bit in range((size - 1).bit_length())]


def _only(source: int, dest: int) -> Callable[[int], int]:
    return lambda rank: dest if rank == source else -1


def _to_parent(reach: int) -> Callable[[int], int]:
    return lambda rank: rank - reach if rank % (2 * reach) == reach else -1


def _to_child(reach: int, size: int) -> Callable[[int], int]:
    return lambda rank: rank + reach if rank % (2 * reach) == 0 and rank + reach < size else -1


def _to_partner(size: int, reach: int) -> Callable[[int], int]:
    taking_part = members(size)
    partners = {rank: taking_part[place ^ reach] for place, rank in enumerate(taking_part)}
    return lambda rank: partners.get(rank, -1)


def _cyclic(size: int, nbytes: float, *, reduces: bool) -> Rounds:
    for distance in range(1, size):
        yield Round(nbytes, lambda rank, distance=distance: (rank + distance) % size, reduces)  # type: ignore[misc]


def _fold(size: int, nbytes: float, *, reduces: bool = False) -> Rounds:
    pairs = 2 * (size - len(members(size)))
    if pairs:
        yield Round(nbytes, lambda rank: rank - 1 if rank < pairs and rank % 2 else -1, reduces)


def _unfold(size: int, nbytes: float) -> Rounds:
    pairs = 2 * (size - len(members(size)))
    if pairs:
        yield Round(nbytes, lambda rank: rank + 1 if rank < pairs and not rank % 2 else -1)


def _halves(size: int, nbytes: float, *, extra: int = 0, reduces: bool = False) -> Rounds:
    """Exchange ever larger runs of members' blocks; those of the first `extra` members count twice."""
    power = len(members(size))
    for reach in _reaches(power):
        largest = (reach + min(reach, extra)) / (power + extra)
        yield Round(nbytes * largest, _to_partner(size, reach), reduces)
