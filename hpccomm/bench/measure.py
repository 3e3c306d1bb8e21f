"""Run one case over all backends: check, time in turn, agree on what came of it.

Every rank comes to every barrier and exchange here whatever fails in between, so a backend that breaks takes no
other one along. Which rank's error is shown and what counts as wrong is decided from all ranks' attempts, by all
ranks alike.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch.distributed as dist

from hpccomm.bench.candidates import Column
from hpccomm.bench.case import Case
from hpccomm.bench.rows import Cell
from hpccomm.bench.verdict import Attempt, Verdict, judge, left_early
from hpccomm.errors import BackendError, HpccommError
from hpccomm.exchange import Exchange, MpiExchange

Barrier = Callable[[], object]

_WRONG = "wrong elements over all ranks {} the timed calls"
_EARLY = "calls that a rank left before another one of its host had come"


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


class Meter:
    """Measures cases on this rank, together with all others.

    Args:
        exchange: Reaches all ranks.
        barrier: Waits for all ranks.
        hosts: Host of each rank.
        check: Whether results are compared.
        warmup_iters: Calls before the timed ones.
    """

    def __init__(
        self, exchange: Exchange, barrier: Barrier, hosts: Sequence[int], *, check: bool, warmup_iters: int
    ) -> None:
        self._exchange, self._barrier, self._hosts = exchange, barrier, hosts
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
        timed = [column for column in columns if before[column.expression].is_right]
        round_s = sum(before[column.expression].times_us[-1] for column in timed) / 1e6
        repetitions = self._exchange.all_gather(choose(round_s))[0]
        after = self._repeat(case, timed, repetitions, show)
        late_fault = _WRONG.format("after") if case.table.collective.has_data else _EARLY
        return {
            name: verdict.cell(name, check=self._check, fault=fault)
            for verdicts, fault in ((before, _WRONG.format("before")), (after, late_fault))
            for name, verdict in verdicts.items()
        }

    def _warm_up(self, case: Case, column: Column) -> Verdict:
        checks = [data for data in (case.integers, case.random) if data and self._check]
        attempt = Attempt()

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
        attempts = {column.expression: Attempt() for column in columns}
        for repetition in range(repetitions):
            show(f"repetition {repetition + 1} of {repetitions}")
            for column in columns:
                self._time(case, column, attempts[column.expression], check=repetition == repetitions - 1)
        gathered = self._exchange.all_gather(attempts)
        return {name: self._judge(case, [of_rank[name] for of_rank in gathered]) for name in attempts}

    def _judge(self, case: Case, attempts: Sequence[Attempt]) -> Verdict:
        verdict = judge(attempts)
        if case.table.collective.has_data or not self._check:
            return verdict
        return replace(verdict, wrong=left_early(attempts, self._hosts))

    def _time(self, case: Case, column: Column, attempt: Attempt, *, check: bool) -> None:
        def once() -> None:
            start = time.perf_counter()
            case.run(column.group)
            attempt.times_us.append((time.perf_counter() - start) * 1e6)
            attempt.starts_s.append(start)

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
