"""Run one case over all backends: check, time in turn, agree on what came of it.

Every rank comes to every barrier and exchange here whatever fails in between, so a backend that breaks takes no
other one along. Which rank's error is shown and what counts as wrong is decided from all ranks' attempts, by all
ranks alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch.distributed as dist

from hpccomm.bench.candidates import Column
from hpccomm.bench.case import Case
from hpccomm.bench.metrics import slowest, summarize
from hpccomm.bench.rows import Cell, State
from hpccomm.errors import BackendError, DeadlineError, HpccommError
from hpccomm.exchange import Exchange, MpiExchange

Barrier = Callable[[], object]


@dataclass
class Attempt:
    """What one rank saw of one backend.

    Attributes:
        times_us: Of each call.
        wrong: Elements that were wrong.
        error: What ended it, or None.
    """

    times_us: list[float]
    wrong: int = 0
    error: HpccommError | None = None


@dataclass(frozen=True)
class Verdict:
    """What all ranks saw of one backend.

    Attributes:
        times_us: Of each call, the maximum over ranks; empty after an error.
        wrong: Elements that were wrong, over all ranks.
        error: The cause on one line, or None.
    """

    times_us: list[float]
    wrong: int
    error: str | None = None


def make_barrier(exchange: Exchange, *, crowded: bool) -> Barrier:
    """Give the barrier before each timed call, the same for all backends.

    It is MPI's where MPI started the ranks, else that of torch's default group.

    Args:
        exchange: Reaches all ranks.
        crowded: Whether ranks share cores, so that waiting must not hold one.
    """
    if not isinstance(exchange, MpiExchange):
        return dist.barrier
    communicator = exchange.communicator
    if not crowded:
        return communicator.Barrier  # type: ignore[no-any-return]

    def polled() -> None:
        request = communicator.Ibarrier()
        while not request.Test():
            os.sched_yield()

    return polled


def judge(attempts: Sequence[Attempt]) -> Verdict:
    """Make one verdict of all ranks' attempts, in rank order.

    An error other than a passed deadline is taken for the cause: the others may only have waited.
    """
    wrong = sum(attempt.wrong for attempt in attempts)
    errors = [(rank, attempt.error) for rank, attempt in enumerate(attempts) if attempt.error is not None]
    if not errors:
        return Verdict(slowest([attempt.times_us for attempt in attempts]), wrong)
    rank, error = min(errors, key=lambda found: (isinstance(found[1], DeadlineError), found[0]))
    alike = len({str(other) for _, other in errors}) == 1 and len(errors) == len(attempts)
    text = error.summary if alike else f"rank {rank}: {error.summary}"
    return Verdict([], wrong, text)


class Meter:
    """Measures cases on this rank, together with all others.

    Args:
        exchange: Reaches all ranks.
        barrier: Waits for all ranks.
        check: Whether results are compared.
        warmup_iters: Calls before the timed ones.
    """

    def __init__(self, exchange: Exchange, barrier: Barrier, *, check: bool, warmup_iters: int) -> None:
        self._exchange, self._barrier = exchange, barrier
        self._check, self._warmup_iters = check, warmup_iters

    def measure(
        self,
        case: Case,
        columns: Sequence[Column],
        choose: Callable[[float], int],
        *,
        show: Callable[[str], None],
    ) -> dict[str, Cell]:
        """Measure one case over the backends that still take part; collective.

        Args:
            case: The case.
            columns: The backends.
            choose: Gives the number of repetitions when one of all backends takes so many seconds; rank 0's holds.
            show: Told what goes on.

        Returns:
            What became of each backend, by its expression.
        """
        before = {}
        for column in columns:
            show(f"warm-up of {column.expression}")
            before[column.expression] = self._warm_up(case, column)
        timed = [column for column in columns if _is_right(before[column.expression])]
        round_s = sum(before[column.expression].times_us[-1] for column in timed) / 1e6
        repetitions = self._exchange.all_gather(choose(round_s))[0]
        after = self._repeat(case, timed, repetitions, show)
        cells = {name: _cell(name, verdict, self._check, "before") for name, verdict in before.items()}
        cells |= {name: _cell(name, verdict, self._check, "after") for name, verdict in after.items()}
        return cells

    def _warm_up(self, case: Case, column: Column) -> Verdict:
        checks = [data for data in (case.integers, case.random) if data and self._check]
        attempt = Attempt([])

        def once(number: int) -> None:
            start = time.perf_counter()
            case.fill(checks[number] if number < len(checks) else case.integers)
            case.run(column.group)
            attempt.times_us.append((time.perf_counter() - start) * 1e6)
            if number < len(checks):
                attempt.wrong += case.count_wrong(checks[number])

        for number in range(max(self._warmup_iters, len(checks))):
            if attempt.error is None:
                attempt.error = _error_of(once, number)
        return judge(self._exchange.all_gather(attempt))

    def _repeat(
        self, case: Case, columns: Sequence[Column], repetitions: int, show: Callable[[str], None]
    ) -> dict[str, Verdict]:
        """Time the backends in turn: A B C A B C; after its last call the result is checked once more."""
        attempts = {column.expression: Attempt([]) for column in columns}
        for repetition in range(repetitions):
            show(f"repetition {repetition + 1} of {repetitions}")
            for column in columns:
                self._time(case, column, attempts[column.expression], check=repetition == repetitions - 1)
        gathered = self._exchange.all_gather(attempts)
        return {name: judge([of_rank[name] for of_rank in gathered]) for name in attempts}

    def _time(self, case: Case, column: Column, attempt: Attempt, *, check: bool) -> None:
        def once() -> None:
            start = time.perf_counter()
            case.run(column.group)
            attempt.times_us.append((time.perf_counter() - start) * 1e6)

        case.fill(case.integers)
        self._barrier()
        if attempt.error is None:
            attempt.error = _error_of(once)
        if attempt.error is None and check and self._check:
            attempt.wrong += case.count_wrong(case.integers)


def _error_of(action: Callable[..., None], *arguments: int) -> HpccommError | None:
    """Run an action and give what it raised."""
    try:
        action(*arguments)
    except HpccommError as error:
        return error
    except Exception as error:
        return BackendError("run the operation", found=f"{type(error).__name__}: {error}", remedy="see there")
    return None


def _is_right(verdict: Verdict) -> bool:
    return verdict.error is None and verdict.wrong == 0


def _cell(backend: str, verdict: Verdict, check: bool, when: str) -> Cell:
    if verdict.error is not None:
        return Cell(backend, State.FAILED, error=verdict.error)
    if verdict.wrong:
        error = f"{verdict.wrong} wrong elements over all ranks, {when} the timed calls"
        return Cell(backend, State.WRONG, wrong=verdict.wrong, error=error)
    return Cell(backend, State.MEASURED, summarize(verdict.times_us), 0 if check else None)
