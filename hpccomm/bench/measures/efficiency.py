"""How near each backend's collectives come to what ranks send each other: highest busbw over that of sendrecv."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hpccomm.bench.candidates import Candidate
from hpccomm.bench.files import Result
from hpccomm.bench.gate import peaks
from hpccomm.bench.layout import format_rate
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Run
from hpccomm.bench.text import field, strong

RULE = "highest busbw of a table over the highest of sendrecv, over all backends: what one rank sends while it receives"


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Judge the tables that were measured; it measures nothing itself."""
    found = efficiencies(run.record.results)
    if found:
        run.screen.say(["", strong("efficiency"), *field("rule", RULE)])
    width = max((len(one["collective"]) for one in found), default=0)
    for one in found:
        run.record.add_section("efficiency", one)
        rate = f"{format_rate(one['busbw_GBps']):>6} GB/s"
        run.screen.say([f"  {one['efficiency']:>5.0%} {rate}  {one['collective']:<{width}}  {one['backend']}"])
    return []


def efficiencies(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Give the efficiency of each backend in each table but sendrecv's; nothing without a rate of sendrecv."""
    found = peaks(results)
    limit = max((peak.gbps for peak in found if peak.row["collective"] == "sendrecv"), default=0.0)
    return [
        {
            "collective": peak.row["collective"],
            "backend": peak.row["backend"],
            "busbw_GBps": peak.gbps,
            "efficiency": peak.gbps / limit,
        }
        for peak in found
        if limit and peak.gbps and peak.row["collective"] != "sendrecv"
    ]
