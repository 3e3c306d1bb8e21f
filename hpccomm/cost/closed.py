"""An algorithm's time in closed form: its rounds, counted once for a placement, are priced for any size and links."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from hpccomm.algorithms import ALGORITHMS, Algorithm
from hpccomm.cost.fabric import Fabric
from hpccomm.cost.rounds import CLOSED_FORMS
from hpccomm.cost.traffic import Load, Nodes, ranks_per_node


@dataclass(frozen=True, slots=True)
class Term:
    """A round whose messages are a part of the whole.

    Attributes:
        share: A message's part of the collective's bytes.
        load: What the round asks of the nodes.
        reduces: As of `Round`.
        overlaps: As of `Round`.
    """

    share: float
    load: Load
    reduces: bool
    overlaps: bool

    def seconds(self, nbytes: float, fabric: Fabric) -> float:
        """Give the time of one such round of a collective of so many bytes."""
        message, transfer = self.share * nbytes, 0.0
        if self.load.inside:
            transfer = fabric.intra.seconds(message)
        if self.load.leaving:
            injected = fabric.inter.alpha_s + self.load.leaving * message / fabric.injection_bytes_per_s
            transfer = max(transfer, fabric.inter.seconds(message), injected)
        reduction = message * fabric.gamma_s_per_byte if self.reduces else 0.0
        return max(transfer, reduction) if self.overlaps else transfer + reduction


def terms(algorithm: Algorithm, collective: str, nodes: Nodes) -> Counter[Term] | None:
    """Count the rounds of an algorithm on ranks that are placed so; None where there is no closed form.

    Hierarchies have one by shards, on nodes that are filled one after the other and are all of one size.
    """
    if algorithm.levels is not None:
        return _by_shards(algorithm, collective, nodes)
    is_known = ALGORITHMS.get(algorithm.name) is algorithm
    return (
        _flat(algorithm.name, collective, nodes) if is_known and (algorithm.name, collective) in CLOSED_FORMS else None
    )


def seconds(counted: Counter[Term], nbytes: float, fabric: Fabric) -> float:
    """Give the time of all rounds of a collective of so many bytes."""
    return sum(times * term.seconds(nbytes, fabric) for term, times in counted.items())


@lru_cache(maxsize=256)
def _flat(name: str, collective: str, nodes: Nodes) -> Counter[Term]:
    found: Counter[Term] = Counter()
    for each in CLOSED_FORMS[name, collective](len(nodes), 1.0):
        for load, times in each.traffic(nodes).items():
            found[Term(each.nbytes, load, each.reduces, each.overlaps)] += times * each.times
    return found


@lru_cache(maxsize=256)
def _by_shards(algorithm: Algorithm, collective: str, nodes: Nodes) -> Counter[Term] | None:
    """All rails at once: each message is a shard's, and every node sends one for each of its ranks."""
    levels, rails = algorithm.levels, ranks_per_node(nodes)
    if levels is None or levels.nodes != nodes or rails is None or collective != "all_reduce":
        return None
    scatter = terms(levels.intra, "reduce_scatter", (0,) * rails)
    across = terms(levels.inter, "all_reduce", tuple(range(len(nodes) // rails)))
    gather = terms(levels.intra, "all_gather", (0,) * rails)
    if scatter is None or across is None or gather is None:
        return None
    found = scatter + gather
    for term, times in across.items():
        load = Load(term.load.leaving * rails, term.load.inside)
        found[replace(term, share=term.share / rails, load=load)] += times
    return found
