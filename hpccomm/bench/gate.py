"""The least bus bandwidth that backends must reach; pure.

What counts is the highest of a backend over the sizes of a table: short messages never come near a link's speed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpccomm.bench.files import Result
from hpccomm.bench.tables import WHAT, described
from hpccomm.bench.text import note, strong
from hpccomm.units import format_bytes


@dataclass(frozen=True)
class Peak:
    """The row of a backend and table with the highest bus bandwidth; `gbps` is 0 where no row has one."""

    row: Result
    gbps: float


def peaks(results: Sequence[Result]) -> list[Peak]:
    """Give the highest of each backend in each table, but for collectives without data."""
    best: dict[tuple[object, ...], Peak] = {}
    for one in results:
        if one["place"] is None:
            continue
        key = (*(one[name] for name in WHAT), one["backend"])
        found = Peak(one, one["busbw_GBps"] or 0.0)
        if key not in best or found.gbps > best[key].gbps:
            best[key] = found
    return list(best.values())


def is_missed(results: Sequence[Result], least_gbps: float) -> bool:
    """Tell whether a backend stays below, or none has a bus bandwidth at all."""
    found = peaks(results)
    return not found or any(peak.gbps < least_gbps for peak in found)


def lines(results: Sequence[Result], least_gbps: float) -> list[str]:
    """Say which backends stay below, and how far they come."""
    found = peaks(results)
    below = [peak for peak in found if peak.gbps < least_gbps]
    shown = [""]
    for peak in below:
        reached = f"{peak.gbps:.4g} GB/s at {format_bytes(peak.row['size_bytes'])}" if peak.gbps else "none"
        shown += note(f"{peak.row['backend']}: busbw of {described(peak.row)}: {reached}")
    verdict = f"{len(below)} of {len(found)} below --min-busbw {least_gbps:g} GB/s" if found else "no busbw to judge"
    return [*shown, strong(verdict)]
