"""How far a rank's clock is ahead of rank 0's, by round trips, at two times; between these by a straight line.

As in Cristian's algorithm, rank 0's answer is taken to be of the middle of the round trip, so that the error is half of
what one way takes longer than the other; of many round trips the shortest counts, since nothing held it up. Clocks that
drift apart evenly are known between two readings as well as at these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUND_TRIPS = 50


@dataclass(frozen=True)
class Reading:
    """What was found at one time.

    Attributes:
        at_s: When, by this rank's clock, in seconds.
        ahead_s: This rank's clock minus rank 0's.
        round_trip_s: How long the round trip took; half of it is the most that `ahead_s` is wrong by.
    """

    at_s: float
    ahead_s: float
    round_trip_s: float


def read(clock: Callable[[], float], ask: Callable[[], float]) -> Reading:
    """Compare this rank's clock with what rank 0 answers."""
    return min((_once(clock, ask) for _ in range(ROUND_TRIPS)), key=lambda one: one.round_trip_s)


def _once(clock: Callable[[], float], ask: Callable[[], float]) -> Reading:
    before = clock()
    theirs = ask()
    after = clock()
    middle = (before + after) / 2
    return Reading(middle, middle - theirs, after - before)


def aligned(readings: Sequence[Reading]) -> Callable[[float], float]:
    """Give what turns this rank's times into rank 0's; none for rank 0 itself, else two readings."""
    if not readings:
        return lambda at: at
    first, last = readings
    drift = (last.ahead_s - first.ahead_s) / (last.at_s - first.at_s)
    return lambda at: at - first.ahead_s - drift * (at - first.at_s)
