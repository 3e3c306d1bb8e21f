"""What is slow among its like, by a stated rule; pure.

A sick link of a host slows all of the host's pairs, and with four hosts that is half of all pairs: so hosts are judged
first, each by the faster quartile of its pairs, then the ranks of the hosts that are well, then the pairs of the ranks
that are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from hpccomm.bench.pairs.matrix import ACROSS, BANDWIDTH, INSIDE, LATENCY, Edge, Matrix

K = TypeVar("K")

FACTOR = 1.5
DEVIATIONS = 3.5
FEWEST = 3
_MAD_TO_SIGMA = 1.4826  # of a normal distribution

RULE = (
    f"slow: at least {FACTOR:g} times as slow as the median of its like and, in logarithms, more than {DEVIATIONS:g} "
    "robust standard deviations (1.4826 MAD) from it. Pairs inside hosts and between hosts are judged apart, each "
    "direction for itself: first hosts by the faster quartile of their pairs, then the ranks of the other hosts, then "
    f"the pairs of the other ranks; fewer than {FEWEST} are not compared. More than half must be well. Where ranks "
    "share cores, only rates between hosts are judged."
)

_SIDES: tuple[tuple[str, Callable[[Edge], int]], ...] = (
    ("sending to", lambda edge: edge.source),
    ("receiving from", lambda edge: edge.dest),
)


@dataclass(frozen=True)
class Outlier:
    """A host, rank or pair that is slow.

    Attributes:
        measure: Latency or bandwidth.
        name: What it is, in words.
        value: Its latency or rate; of a host or rank the faster quartile.
        median: That of its like.
        times: How many times as slow as that.
        edges: The (source, dest) that belong to it.
    """

    measure: str
    name: str
    value: float
    median: float
    times: float
    edges: tuple[tuple[int, int], ...]

    def entries(self) -> dict[str, Any]:
        """Give it as JSON takes it."""
        return asdict(self)


def find(matrix: Matrix) -> list[Outlier]:
    """Find what is slow, the slowest first."""
    found = [one for kind, measure in _judged(matrix) for one in _of_kind(matrix, kind, measure)]
    return sorted(found, key=lambda one: -one.times)


def none_slow(matrix: Matrix) -> str:
    """Say that nothing was found, or that nothing could be."""
    if _judged(matrix):
        return "no host, rank or pair is slow"
    few = "ranks share cores, and too few pairs are between hosts" if matrix.oversubscribed else "too few pairs"
    return f"nothing could be judged: {few}"


def _judged(matrix: Matrix) -> list[tuple[str, str]]:
    """Give what the rule compares, where there is enough of it."""
    found = [(ACROSS, BANDWIDTH)]
    if not matrix.oversubscribed:
        found += [(INSIDE, BANDWIDTH), (ACROSS, LATENCY), (INSIDE, LATENCY)]
    return [one for one in found if len(matrix.of_kind(*one)) >= FEWEST]


def slow(costs: Mapping[K, float]) -> dict[K, float]:
    """Give those whose cost is too high by the rule, each with how many times the median it is.

    >>> slow({"a": 1.0, "b": 1.0, "c": 1.0, "d": 4.0})
    {'d': 4.0}
    """
    if len(costs) < FEWEST:
        return {}
    logs = {key: math.log(cost) for key, cost in costs.items()}
    centre = statistics.median(logs.values())
    sigma = _MAD_TO_SIGMA * statistics.median(abs(value - centre) for value in logs.values())
    limit = max(math.log(FACTOR), DEVIATIONS * sigma)
    return {key: math.exp(value - centre) for key, value in logs.items() if value - centre > limit}


def _of_kind(matrix: Matrix, kind: str, measure: str) -> list[Outlier]:
    left, found = matrix.of_kind(kind, measure), []
    for unit, name in ((lambda rank: matrix.hosts[rank], _host_name), (lambda rank: rank, _rank_name)):
        sick = _sick_units(left, measure, unit)
        found += [_outlier(measure, name(matrix, key, kind, one.sides), one) for key, one in sick.items()]
        gone = {edge for one in sick.values() for edge in one.edges}
        left = [edge for edge in left if edge not in gone]
    costs = {edge: _cost([edge], measure) for edge in left}
    for edge, times in slow(costs).items():
        name_of_pair = f"{matrix.rank_name(edge.source)} to {matrix.rank_name(edge.dest)}"
        found.append(_outlier(measure, name_of_pair, _Sick(times, costs[edge], (), (edge,))))
    return found


@dataclass(frozen=True)
class _Sick:
    """How many times as slow, the cost, on which sides, and the edges that are judged by it."""

    times: float
    cost: float
    sides: tuple[str, ...]
    edges: tuple[Edge, ...]


def _sick_units(edges: Sequence[Edge], measure: str, unit: Callable[[int], int]) -> dict[int, _Sick]:
    """Judge units, which are hosts or ranks, by what they send and by what they receive."""
    found: dict[int, _Sick] = {}
    for side, end in _SIDES:
        groups: dict[int, list[Edge]] = {}
        for edge in edges:
            groups.setdefault(unit(end(edge)), []).append(edge)
        costs = {key: _cost(group, measure) for key, group in groups.items()}
        for key, times in slow(costs).items():
            one = _Sick(times, costs[key], (side,), tuple(groups[key]))
            found[key] = _both(found[key], one) if key in found else one
    return found


def _both(one: _Sick, other: _Sick) -> _Sick:
    worse = max(one, other, key=lambda sick: sick.times)
    return replace(worse, sides=one.sides + other.sides, edges=one.edges + other.edges)


def _cost(edges: Iterable[Edge], measure: str) -> float:
    """Give the faster quartile: what is sick is slow with all, and a sick partner or a hitch leaves the others well."""
    costs = sorted(cost for edge in edges if (cost := edge.cost(measure)))
    return costs[(len(costs) - 1) // 4]


def _host_name(matrix: Matrix, host: int, kind: str, sides: Sequence[str]) -> str:
    where = f"{' and '.join(sides)} other hosts" if kind == ACROSS else "among its ranks"
    return f"host {matrix.hostnames[host]}, {where}"


def _rank_name(matrix: Matrix, rank: int, kind: str, sides: Sequence[str]) -> str:
    return f"{matrix.rank_name(rank)}, {' and '.join(sides)} ranks of {'other hosts' if kind == ACROSS else 'its host'}"


def _outlier(measure: str, name: str, sick: _Sick) -> Outlier:
    value, median = sick.cost, sick.cost / sick.times
    if measure == BANDWIDTH:
        value, median = 1 / value, 1 / median
    ends = dict.fromkeys((edge.source, edge.dest) for edge in sick.edges)
    return Outlier(measure, name, value, median, sick.times, tuple(ends))
