"""How near each backend's collectives come to what ranks send each other: highest busbw over that of sendrecv. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpccomm.bench.files import Result
from hpccomm.bench.gate import peaks
from hpccomm.bench.tables import WHAT, described
from hpccomm.topology.grouping import count

LIMIT = "sendrecv"
RULE = "highest busbw of a table over the highest of sendrecv, over all backends: what one rank sends while it receives"


@dataclass(frozen=True)
class Efficiency:
    """One backend in one table.

    Attributes:
        what: The table's values of `WHAT`.
        backend: Its expression.
        size_bytes: Where its busbw is the highest.
        busbw_gbps: The highest, in GB/s.
        limit_gbps: The highest of sendrecv, over all backends.
    """

    what: Mapping[str, Any]
    backend: str
    size_bytes: int
    busbw_gbps: float
    limit_gbps: float

    @property
    def table(self) -> str:
        """The table in words."""
        return f"{described(self.what)}, on {count(self.what['ranks'], 'rank')}"

    @property
    def percent(self) -> float:
        """Percent of the limit."""
        return 100 * self.busbw_gbps / self.limit_gbps

    def entries(self) -> dict[str, Any]:
        """Give it as JSON takes it."""
        return {
            **self.what,
            "backend": self.backend,
            "size_bytes": self.size_bytes,
            "busbw_GBps": self.busbw_gbps,
            "limit_GBps": self.limit_gbps,
            "efficiency": self.busbw_gbps / self.limit_gbps,
        }


def efficiencies(results: Sequence[Result]) -> list[Efficiency]:
    """Give that of each backend in each table but sendrecv's; nothing without a rate of sendrecv."""
    found = peaks(results)
    limit = max((peak.gbps for peak in found if peak.row["collective"] == LIMIT), default=0.0)
    return [
        Efficiency(
            {name: peak.row[name] for name in WHAT}, peak.row["backend"], peak.row["size_bytes"], peak.gbps, limit
        )
        for peak in found
        if limit and peak.gbps and peak.row["collective"] != LIMIT
    ]
