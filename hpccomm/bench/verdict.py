"""From what every rank saw of a backend to one verdict that all ranks share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpccomm.bench.metrics import slowest, spreads, summarize
from hpccomm.bench.rows import Cell, State
from hpccomm.errors import DeadlineError, HpccommError


@dataclass
class Attempt:
    """What one rank saw of one backend.

    Attributes:
        times_us: Of each call.
        starts_s: When each call began, by a clock that the processes of a host share.
        wrong: Elements that were wrong.
        error: What ended it, or None.
    """

    times_us: list[float] = field(default_factory=list)
    starts_s: list[float] = field(default_factory=list)
    wrong: int = 0
    error: HpccommError | None = None


@dataclass(frozen=True)
class Verdict:
    """What all ranks saw of one backend.

    Attributes:
        times_us: Of each call, the maximum over ranks; empty after an error.
        skews_us: Of each call, the maximum minus the minimum over ranks; empty after an error.
        wrong: Elements that were wrong, over all ranks, or calls that did not wait.
        error: The cause on one line, or None.
    """

    times_us: list[float]
    skews_us: list[float]
    wrong: int
    error: str | None = None

    @property
    def is_right(self) -> bool:
        """Whether nothing failed or was wrong."""
        return self.error is None and self.wrong == 0

    def cell(self, backend: str, *, check: bool, fault: str) -> Cell:
        """Give the backend's cell.

        Args:
            backend: Its expression.
            check: Whether results were compared.
            fault: What `wrong` counts, in words.
        """
        if self.error is not None:
            return Cell(backend, State.FAILED, error=self.error)
        if self.wrong:
            return Cell(backend, State.WRONG, wrong=self.wrong, error=f"{fault}: {self.wrong}")
        return Cell(backend, State.MEASURED, summarize(self.times_us, self.skews_us), 0 if check else None)


def judge(attempts: Sequence[Attempt]) -> Verdict:
    """Make one verdict of all ranks' attempts, in rank order.

    An error other than a passed deadline is taken for the cause: the others may only have waited.
    """
    wrong = sum(attempt.wrong for attempt in attempts)
    errors = [(rank, attempt.error) for rank, attempt in enumerate(attempts) if attempt.error is not None]
    if not errors:
        times = [attempt.times_us for attempt in attempts]
        return Verdict(slowest(times), spreads(times), wrong)
    rank, error = min(errors, key=lambda found: (isinstance(found[1], DeadlineError), found[0]))
    alike = len({str(other) for _, other in errors}) == 1 and len(errors) == len(attempts)
    text = error.summary if alike else f"rank {rank}: {error.summary}"
    return Verdict([], [], wrong, text)


def left_early(attempts: Sequence[Attempt], hosts: Sequence[int]) -> int:
    """Count the calls that a rank left before another rank of its host had begun them: none, for a right barrier.

    Args:
        attempts: Of all ranks.
        hosts: Host of each rank, as clocks of different hosts cannot be compared.
    """
    found: set[int] = set()
    for host in set(hosts):
        here = [attempt for attempt, of in zip(attempts, hosts, strict=True) if of == host]
        begun = zip(*(attempt.starts_s for attempt in here), strict=False)
        ended = zip(*(_ends_s(attempt) for attempt in here), strict=False)
        pairs = zip(begun, ended, strict=False)
        found |= {call for call, (starts, ends) in enumerate(pairs) if min(ends) < max(starts)}
    return len(found)


def _ends_s(attempt: Attempt) -> list[float]:
    return [start + time_us / 1e6 for start, time_us in zip(attempt.starts_s, attempt.times_us, strict=False)]
