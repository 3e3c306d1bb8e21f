"""Times to figures: maximum and spread over ranks, statistics over repetitions, algbw and busbw. Pure.

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
    """Statistics over repetitions, in microseconds.

    Attributes:
        iterations: How many repetitions.
        median_us: Median of the calls' times, as all others but the last.
        min_us: The smallest.
        p95_us: The smallest that 95 % do not exceed.
        p99_us: The smallest that 99 % do not exceed.
        max_us: The largest.
        skew_us: Median of the spreads over ranks.
    """

    iterations: int
    median_us: float
    min_us: float
    p95_us: float
    p99_us: float
    max_us: float
    skew_us: float


def slowest(times_us: Sequence[Sequence[float]]) -> list[float]:
    """Give the maximum over ranks of every repetition, from every rank's times.

    >>> slowest([[1.0, 5.0], [2.0, 4.0]])
    [2.0, 5.0]
    """
    return [max(of_ranks) for of_ranks in zip(*times_us, strict=True)]


def spreads(times_us: Sequence[Sequence[float]]) -> list[float]:
    """Give the maximum minus the minimum over ranks of every repetition, from every rank's times.

    >>> spreads([[1.0, 5.0], [2.0, 4.0]])
    [1.0, 1.0]
    """
    return [max(of_ranks) - min(of_ranks) for of_ranks in zip(*times_us, strict=True)]


def summarize(times_us: Sequence[float], skews_us: Sequence[float]) -> Times:
    """Give the statistics of at least one repetition."""
    ordered = sorted(times_us)
    p95, p99 = (ordered[math.ceil(percent * len(ordered) / 100) - 1] for percent in (95, 99))
    median, skew = statistics.median(ordered), statistics.median(skews_us)
    return Times(len(ordered), median, ordered[0], p95, p99, ordered[-1], skew)


def busbw_gbps(size_bytes: int, time_us: float, factor: float | None) -> float | None:
    """Give the bus bandwidth in GB/s; None where there is no factor, that is with one rank or without data."""
    return None if factor is None else factor * rate_gbps(size_bytes, time_us)
