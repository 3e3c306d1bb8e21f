"""What was measured between the ranks, as data, and as JSON takes it; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

LATENCY, BANDWIDTH = "latency", "bandwidth"
INSIDE, ACROSS = "inside hosts", "between hosts"
UNITS = {LATENCY: "us", BANDWIDTH: "GB/s"}
LATENCY_BYTES = 8

DEFINITIONS = {
    LATENCY: f"microseconds: half the time of {LATENCY_BYTES} bytes there and {LATENCY_BYTES} bytes back, median of "
    "the repetitions",
    BANDWIDTH: f"GB/s (10^9 bytes a second): bytes of one message / time until the answer of {LATENCY_BYTES} bytes to "
    "it is there, median of the repetitions",
}
_COLUMNS = ("source", "dest", "latency_us", "GBps", "wrong")


@dataclass(frozen=True)
class Edge:
    """One direction between two ranks.

    Attributes:
        source: Rank that begins, and whose clock it is.
        dest: Rank that answers.
        latency_us: Microseconds of a small message; None where anything was wrong.
        gbps: Rate of a large message; None likewise.
        wrong: Wrong bytes of all messages.
    """

    source: int
    dest: int
    latency_us: float | None
    gbps: float | None
    wrong: int = 0

    def value(self, measure: str) -> float | None:
        """Give the latency or the rate."""
        return self.latency_us if measure == LATENCY else self.gbps

    def cost(self, measure: str) -> float | None:
        """Give what is the more the slower: the latency, or the inverse of the rate."""
        return self.latency_us if measure == LATENCY else self.gbps and 1 / self.gbps


@dataclass(frozen=True)
class Matrix:
    """All pairs that were measured over one backend.

    Attributes:
        backend: Its expression.
        message_bytes: Size of a large message.
        iterations: Timed large messages of each direction.
        hosts: Host of each rank, numbered from 0.
        hostnames: Name of each host.
        oversubscribed: Whether ranks share cores, so that latencies are those of waiting for a core.
        rounds: Rounds that were played.
        all_rounds: Rounds in which every pair would have met.
        edges: What was measured, both directions of each pair that met.
        error: What ended it early, or None.
    """

    backend: str
    message_bytes: int
    iterations: int
    hosts: tuple[int, ...]
    hostnames: tuple[str, ...]
    oversubscribed: bool
    rounds: int
    all_rounds: int
    edges: tuple[Edge, ...]
    error: str | None = None

    @property
    def is_broken(self) -> bool:
        """Whether anything failed or was wrong."""
        return self.error is not None or any(edge.wrong for edge in self.edges)

    def kind(self, edge: Edge) -> str:
        """Tell whether a pair is of one host or of two; only pairs of one kind are compared."""
        return INSIDE if self.hosts[edge.source] == self.hosts[edge.dest] else ACROSS

    def of_kind(self, kind: str, measure: str) -> list[Edge]:
        """Give the edges of a kind that have a value."""
        return [edge for edge in self.edges if self.kind(edge) == kind and edge.value(measure)]

    def medians(self, measure: str) -> dict[str, float]:
        """Give the median value of each kind of which there are any."""
        values = {kind: [edge.value(measure) for edge in self.of_kind(kind, measure)] for kind in (INSIDE, ACROSS)}
        return {kind: statistics.median(filter(None, found)) for kind, found in values.items() if found}

    def times(self, edge: Edge, measure: str, medians: Mapping[str, float]) -> float:
        """Tell how many times as slow an edge is as the median of its kind, one of `medians`."""
        value, median = edge.value(measure), medians[self.kind(edge)]
        assert value is not None
        return value / median if measure == LATENCY else median / value

    def rank_name(self, rank: int) -> str:
        """Name a rank with its host."""
        return f"rank {rank} ({self.hostnames[self.hosts[rank]]})"

    def entries(self) -> dict[str, Any]:
        """Give all of it as JSON takes it: a row of `columns` for each edge."""
        rows = [[edge.source, edge.dest, edge.latency_us, edge.gbps, edge.wrong] for edge in self.edges]
        return {**asdict(self), "definitions": DEFINITIONS, "columns": _COLUMNS, "edges": rows}


def from_entries(entries: Mapping[str, Any]) -> Matrix:
    """Read what `Matrix.entries` gave.

    Raises:
        ValueError, TypeError or KeyError: It is something else.
    """
    hosts, names = tuple(map(_whole, entries["hosts"])), tuple(str(name) for name in entries["hostnames"])
    if not all(host in range(len(names)) for host in hosts):
        raise ValueError("a pair matrix with hosts that have no name")
    return Matrix(
        backend=str(entries["backend"]),
        message_bytes=_whole(entries["message_bytes"]),
        iterations=_whole(entries["iterations"]),
        hosts=hosts,
        hostnames=names,
        oversubscribed=bool(entries["oversubscribed"]),
        rounds=_whole(entries["rounds"]),
        all_rounds=_whole(entries["all_rounds"]),
        edges=tuple(_edge(row, len(hosts)) for row in entries["edges"]),
        error=None if entries["error"] is None else str(entries["error"]),
    )


def _edge(row: Sequence[Any], ranks: int) -> Edge:
    source, dest, latency_us, gbps, wrong = row
    if source not in range(ranks) or dest not in range(ranks):
        raise ValueError(f"a pair of ranks {source} and {dest}")
    return Edge(_whole(source), _whole(dest), _positive(latency_us), _positive(gbps), _whole(wrong))


def _positive(value: Any) -> float | None:
    if value is not None and not 0 < float(value) < math.inf:
        raise ValueError(f"{value!r} where a positive number belongs")
    return None if value is None else float(value)


def _whole(value: Any) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{value!r} where a whole number belongs")
    return value
