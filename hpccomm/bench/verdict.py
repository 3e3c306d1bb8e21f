"""From what every rank saw of a backend to one cell that all ranks share. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hpccomm.bench.metrics import slowest, spreads, summarize
from hpccomm.bench.rows import Cell, State
from hpccomm.errors import DeadGroupError, DeadlineError, HpccommError


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


def judge(backend: str, attempts: Sequence[Attempt], *, wrong: int | None, fault: str) -> Cell:
    """Make one cell of all ranks' attempts, in rank order.

    Args:
        backend: Its expression.
        attempts: At least one call each, or an error.
        wrong: What was wrong over all ranks; None where nothing was checked.
        fault: What `wrong` counts, in words.
    """
    errors = {rank: attempt.error for rank, attempt in enumerate(attempts) if attempt.error is not None}
    if errors:
        return Cell(backend, State.FAILED, error=cause(errors, len(attempts)))
    if wrong:
        return Cell(backend, State.WRONG, wrong=wrong, error=f"{fault}: {wrong}")
    times_us = [attempt.times_us for attempt in attempts]
    return Cell(backend, State.MEASURED, summarize(slowest(times_us), spreads(times_us)), wrong)


def cause(errors: Mapping[int, HpccommError], ranks: int) -> str:
    """Say what failed: an error of its own on some rank, as ranks with the others may only have waited."""
    rank = min(errors, key=lambda rank: (isinstance(errors[rank], (DeadlineError, DeadGroupError)), rank))
    alike = len(errors) == ranks and len({str(error) for error in errors.values()}) == 1
    return errors[rank].summary if alike else f"rank {rank}: {errors[rank].summary}"


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
