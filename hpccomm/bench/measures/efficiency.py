"""How near each backend's collectives come to what ranks send each other."""

from __future__ import annotations

from collections.abc import Sequence

from hpccomm.bench.candidates import Candidate
from hpccomm.bench.efficiency import RULE, efficiencies
from hpccomm.bench.layout import format_rate
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Run
from hpccomm.bench.text import field, strong


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Judge the tables that were measured; it measures nothing itself."""
    found = efficiencies(run.record.results)
    if found:
        run.screen.say(["", strong("efficiency"), *field("rule", RULE)])
    width = max((len(one.table) for one in found), default=0)
    for one in found:
        run.record.add_section("efficiency", one.entries())
        rate = f"{format_rate(one.busbw_gbps):>6} GB/s"
        run.screen.say([f"  {one.percent:>4.0f}% {rate}  {one.table:<{width}}  {one.backend}"])
    return []
