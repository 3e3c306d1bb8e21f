"""Times to figures: maximum over ranks, statistics over repetitions, algbw and busbw. Pure.

algbw is bytes over time; busbw is algbw times the collective's factor, so that it can be compared with the speed of
a link whatever the number of ranks (the definitions of nccl-tests). Both in GB/s, 10**9 bytes a second.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from hpccomm.units import rate_gbps


@dataclass(frozen=True)
class Times:
    """Statistics over repetitions, in microseconds; p95 is the smallest time that 95 % do not exceed."""

    iterations: int
    median_us: float
    min_us: float
    p95_us: float
    max_us: float


def slowest(times_us: Sequence[Sequence[float]]) -> list[float]:
    """Give the maximum over ranks of every repetition, from every rank's times.

    >>> slowest([[1.0, 5.0], [2.0, 4.0]])
    [2.0, 5.0]
    """
    return [max(of_ranks) for of_ranks in zip(*times_us, strict=True)]


def summarize(times_us: Sequence[float]) -> Times:
    """Give the statistics of at least one repetition."""
    ordered = sorted(times_us)
    p95 = ordered[math.ceil(0.95 * len(ordered)) - 1]
    return Times(len(ordered), statistics.median(ordered), ordered[0], p95, ordered[-1])


def algbw_gbps(size_bytes: int, time_us: float) -> float:
    """Give bytes over time in GB/s."""
    return rate_gbps(size_bytes, time_us)


def busbw_gbps(size_bytes: int, time_us: float, factor: float | None) -> float | None:
    """Give the bus bandwidth in GB/s; None where there is no factor, that is with one rank."""
    return None if factor is None else factor * rate_gbps(size_bytes, time_us)


def definitions(formula: str, ranks: int, factor: float | None) -> dict[str, str]:
    """Say what the figures mean, for table and JSON alike.

    Args:
        formula: The collective's busbw factor as text.
        ranks: Number of ranks n.
        factor: The factor for n ranks, None for one rank.
    """
    busbw = f"GB/s = {formula} x size / time; n = {ranks} ranks: {factor:.4g} x size / time" if factor else None
    return {
        "size": "bytes of the larger of a rank's tensors; KiB = 1024 B",
        "time": "microseconds of one call: maximum over ranks, then median of the repetitions",
        "algbw": "GB/s (10^9 bytes a second) = size / time",
        "busbw": busbw or "none with one rank",
        "p95": "the smallest time that 95 % of the repetitions do not exceed",
        "wrong": "elements that are not what they must be, over all ranks, before and after the timed calls",
    }
