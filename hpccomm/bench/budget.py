"""How much is measured within the time that is allowed: which sizes, and how many repetitions.

All ranks keep a budget but rank 0's answers hold for all. It knows neither backends nor the exchange of answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

FEWEST = 5
MOST = 50
_FIXED = 65536


class Budget:
    """The time for measuring one table, from now on.

    Args:
        total_s: Seconds.
        asked: The user's number of repetitions, which is kept; None for `FEWEST` to `MOST`.
        clock: Gives seconds.
    """

    def __init__(self, total_s: float, asked: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._asked, self._clock = asked, clock
        self._total_s = total_s
        self._end = clock() + total_s
        self._costs: list[tuple[int, float]] = []
        self._started = self._timed_from = clock()
        self._sizes_left = self._iterations = 1

    @property
    def left_s(self) -> float:
        """Seconds left, 0 if there are none."""
        return max(0.0, self._end - self._clock())

    @property
    def used_s(self) -> float:
        """Seconds that were used, which may be more than there were."""
        return self._total_s - (self._end - self._clock())

    def estimate(self, size: int) -> float:
        """Give the seconds that a size will take with the fewest repetitions; 0 where nothing is known yet."""
        return predict(self._costs, size)

    def allows(self, size: int) -> bool:
        """Tell whether the next size fits in; the first one always does."""
        return self.estimate(size) <= self.left_s

    def start(self, sizes_left: int) -> None:
        """Begin a size, the first of so many that are to come."""
        self._started, self._sizes_left = self._clock(), sizes_left

    def choose(self, round_s: float) -> int:
        """Give the number of repetitions, one of which takes `round_s` seconds; they begin now."""
        self._timed_from = self._clock()
        self._iterations = iterations(self.left_s / self._sizes_left, round_s, self._asked)
        return self._iterations

    def finish(self, size: int, *, is_typical: bool) -> None:
        """End a size.

        Args:
            size: In bytes.
            is_typical: False where a backend failed: the time it was waited for is not counted.
        """
        now = self._clock()
        if not is_typical:
            self._end += now - self._started
            return
        one_s = (now - self._timed_from) / self._iterations
        fewest = self._asked or FEWEST
        self._costs.append((size, self._timed_from - self._started + fewest * one_s))


def iterations(share_s: float, round_s: float, asked: int | None) -> int:
    """Give the number of repetitions of so many seconds each that fit into a share of the time."""
    if asked is not None:
        return asked
    return int(min(MOST, max(FEWEST, share_s / max(round_s, 1e-9))))


def predict(costs: Sequence[tuple[int, float]], size: int) -> float:
    """Predict the seconds that a larger size needs, which grow linearly with the size.

    Args:
        costs: (size in bytes, seconds) of those before, ascending.
        size: The size that comes next.

    Returns:
        No less than the last one's seconds, nor more than if a call's fixed part took as long as `_FIXED` bytes; so
        two small sizes that differ by chance rule nothing out. 0 if no size was before.
    """
    if not costs:
        return 0.0
    last, seconds = costs[-1]
    if size == last:  # such as one step in other pieces
        return seconds
    most = seconds * (_FIXED + size) / (_FIXED + last)
    if len(costs) == 1:
        return most
    before, seconds_before = costs[-2]
    slope = max(0.0, seconds - seconds_before) / (last - before)
    return min(seconds + slope * (size - last), most)
