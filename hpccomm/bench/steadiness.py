"""From the times of many equal calls to drift, spikes and stragglers, by stated rules. Pure.

Ranks leave a call of all at about the same time, so one that is in it for the shortest time came last: a rank is late
by the longest time in a call minus its own. That needs no common clock.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

REPEATED = "repeated all_reduce"
DRIFT = 0.1
SPIKE = 3.0
LATE = 0.1

RULE = (
    "time: the longest over ranks; no barrier before a call, but the same work, to fill the tensor. drift: median of "
    f"the last fifth of the calls over that of the first, spoken of from {DRIFT:.0%}; spike: a call of more than "
    f"{SPIKE:g} times the median; straggler: a host or rank that in the median call comes later than the median of "
    f"the others by {LATE:.0%} of the median time; hosts first, by the earlier quartile of their ranks, then "
    "the ranks of the other hosts; last: the rank with the shortest time in a call"
)
STRETCHES = 200
"""Most stretches of calls whose times are kept for drawing."""


@dataclass(frozen=True)
class Straggler:
    """A host or a rank that comes late.

    Attributes:
        name: Which one, in words.
        late_us: By how much later than the others in the median call, in microseconds.
        last: Share of the calls in which it, or one of its ranks, came last.
    """

    name: str
    late_us: float
    last: float


@dataclass(frozen=True)
class Stretch:
    """Some calls in a row.

    Attributes:
        first: Number of the first one, from 0.
        median_us: Median of their times, in microseconds.
        longest_us: The longest.
    """

    first: int
    median_us: float
    longest_us: float


@dataclass(frozen=True)
class Steadiness:
    """What many equal calls tell; times in microseconds.

    Attributes:
        calls: How many.
        seconds: How long they went on.
        median_us: Median of the calls.
        drift: By which part of the first calls' time the last ones take longer.
        spikes: Calls that took far longer than the median.
        longest_us: The longest call.
        longest_at: Its number, from 0.
        stragglers: Hosts and ranks that come late, the latest first.
        course: The calls in their order, in stretches.
        late_us: By how much later than the first one each rank came in the median call.
        last: Share of the calls in which each rank came last.
    """

    calls: int
    seconds: float
    median_us: float
    drift: float
    spikes: int
    longest_us: float
    longest_at: int
    stragglers: tuple[Straggler, ...]
    course: tuple[Stretch, ...]
    late_us: tuple[float, ...]
    last: tuple[float, ...]

    def entries(self) -> dict[str, Any]:
        """Give it as JSON takes it."""
        return {**asdict(self), "rule": RULE}


@dataclass
class Log:
    """The times of calls as they come; of each rank's lateness it keeps one median a portion.

    Attributes:
        times_us: The longest time over ranks of every call.
        lateness_us: For every portion, how late each rank came in its median call.
        lasts: In how many calls each rank came last.
    """

    times_us: list[float] = field(default_factory=list)
    lateness_us: list[list[float]] = field(default_factory=list)
    lasts: Counter[int] = field(default_factory=Counter)

    def add(self, times_us: Sequence[Sequence[float]]) -> None:
        """Add a portion of calls: the times of each rank."""
        longest = [max(of_ranks) for of_ranks in zip(*times_us, strict=True)]
        self.times_us += longest
        self.lasts.update(of_ranks.index(min(of_ranks)) for of_ranks in zip(*times_us, strict=True))
        self.lateness_us.append([
            statistics.median(most - own for most, own in zip(longest, of_rank, strict=True)) for of_rank in times_us
        ])  # fmt: skip

    def judge(self, hosts: Sequence[int], hostnames: Sequence[str], *, seconds: float) -> Steadiness:
        """Judge at least one portion.

        Args:
            hosts: Host of each rank.
            hostnames: Name of each host.
            seconds: How long the calls went on.
        """
        times, median = self.times_us, statistics.median(self.times_us)
        fifth = max(1, len(times) // 5)
        longest = max(times)
        late = [statistics.median(of_rank) for of_rank in zip(*self.lateness_us, strict=True)]
        last = tuple(self.lasts[rank] / len(times) for rank in range(len(late)))
        return Steadiness(
            calls=len(times),
            seconds=seconds,
            median_us=median,
            drift=statistics.median(times[-fifth:]) / statistics.median(times[:fifth]) - 1,
            spikes=sum(time > SPIKE * median for time in times),
            longest_us=longest,
            longest_at=times.index(longest),
            stragglers=_stragglers(late, last, hosts, hostnames, least_us=LATE * median),
            course=_course(times),
            late_us=tuple(one - min(late) for one in late),
            last=last,
        )


def _course(times_us: Sequence[float]) -> tuple[Stretch, ...]:
    long = -(-len(times_us) // STRETCHES)
    parts = {first: times_us[first : first + long] for first in range(0, len(times_us), long)}
    return tuple(Stretch(first, statistics.median(part), max(part)) for first, part in parts.items())


def _stragglers(
    late_us: Sequence[float], last: Sequence[float], hosts: Sequence[int], hostnames: Sequence[str], *, least_us: float
) -> tuple[Straggler, ...]:
    of_hosts = {}
    for host in sorted(set(hosts)):
        here = sorted(late for late, on in zip(late_us, hosts, strict=True) if on == host)
        of_hosts[host] = here[(len(here) - 1) // 4]
    slow = {host: later for host, later in _later(of_hosts).items() if later >= least_us}
    left = {rank: late for rank, late in enumerate(late_us) if hosts[rank] not in slow}
    found = []
    for host, later in slow.items():
        share = sum(one for one, on in zip(last, hosts, strict=True) if on == host)
        found.append(Straggler(f"host {hostnames[host]}", later, share))
    for rank, later in _later(left).items():
        if later >= least_us:
            found.append(Straggler(f"rank {rank} on host {hostnames[hosts[rank]]}", later, last[rank]))
    return tuple(sorted(found, key=lambda one: -one.late_us))


def _later(late_us: Mapping[int, float]) -> dict[int, float]:
    """Give how much later each is than the median of the others; nothing where there is one alone."""
    if len(late_us) < 2:
        return {}
    return {
        one: late - statistics.median(other for key, other in late_us.items() if key != one)
        for one, late in late_us.items()
    }
