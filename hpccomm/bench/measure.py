"""Run one case over all backends: check, time in turn, agree on what came of it.

Every rank comes to every barrier and exchange here whatever fails in between, so a backend that breaks takes no
other one along. Which rank's error is shown and what counts as wrong is decided from all ranks' attempts, by all
ranks alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch.distributed as dist

from hpccomm.bench.candidates import Candidate
from hpccomm.bench.case import Data
from hpccomm.bench.rows import Cell, State
from hpccomm.bench.tables import Table
from hpccomm.bench.verdict import Attempt, judge, left_early
from hpccomm.errors import BackendError, HpccommError
from hpccomm.exchange import Exchange, MpiExchange
from hpccomm.polling import until

Barrier = Callable[[], object]

_EARLY = "calls that a rank left before another one of its host had come"


class Measured(Protocol):
    """What can be measured on a group, and checked: a `Case`, or more calls than one.

    Attributes:
        table: What it belongs to.
        integers: What goes in and what must come out, compared for equality.
        random: The same, compared within a bound; None where there is no such check.
    """

    table: Table
    integers: Data
    random: Data | None

    def fill(self, data: Data) -> None:
        """Put the input in place."""
        ...

    def run(self, group: Any) -> None:
        """Do what is timed."""
        ...

    def count_wrong(self, data: Data) -> int:
        """Count the elements that are not what they must be."""
        ...


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
    return lambda: until(communicator.Ibarrier().Test)


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
        case: Measured,
        candidates: Sequence[Candidate],
        choose: Callable[[float], int],
        *,
        show: Callable[[str], None],
    ) -> dict[str, Cell]:
        """Measure one case over the backends that still take part; collective.

        Args:
            case: The case.
            candidates: The backends.
            choose: Gives the number of repetitions when one of all backends takes so many seconds; rank 0's holds.
            show: Told what goes on.

        Returns:
            What became of each backend, by its expression.
        """
        cells, round_us = {}, 0.0
        for candidate in candidates:
            show(f"warm-up of {candidate.expression}")
            attempts = self._warm_up(case, candidate)
            cells[candidate.expression] = self._judge(case, candidate.expression, attempts, when="before")
            if cells[candidate.expression].state is State.MEASURED:
                round_us += max(attempt.times_us[-1] for attempt in attempts)
        timed = [candidate for candidate in candidates if cells[candidate.expression].state is State.MEASURED]
        repetitions = self._exchange.all_gather(choose(round_us / 1e6))[0]
        for name, attempts in self._repeat(case, timed, repetitions, show).items():
            cells[name] = self._judge(case, name, attempts, when="after")
        return cells

    def _warm_up(self, case: Measured, candidate: Candidate) -> list[Attempt]:
        """Run a backend a few times, check the first results, and give all ranks' attempts."""
        checks = [data for data in (case.integers, case.random) if data and self._check]
        attempt = Attempt()

        def once(number: int) -> None:
            start = time.perf_counter()
            case.fill(checks[number] if number < len(checks) else case.integers)
            case.run(candidate.group)
            attempt.times_us.append((time.perf_counter() - start) * 1e6)
            if number < len(checks):
                attempt.wrong += case.count_wrong(checks[number])

        for number in range(max(self._warmup_iters, len(checks))):
            if attempt.error is None:
                attempt.error = error_of(once, number)
        return self._exchange.all_gather(attempt)

    def _repeat(
        self, case: Measured, candidates: Sequence[Candidate], repetitions: int, show: Callable[[str], None]
    ) -> dict[str, list[Attempt]]:
        """Time the backends in turn: A B C A B C; after its last call the result is checked once more."""
        attempts = {candidate.expression: Attempt() for candidate in candidates}
        for repetition in range(repetitions):
            show(f"repetition {repetition + 1} of {repetitions}")
            for candidate in candidates:
                self._time(case, candidate, attempts[candidate.expression], check=repetition == repetitions - 1)
        gathered = self._exchange.all_gather(attempts)
        return {name: [of_rank[name] for of_rank in gathered] for name in attempts}

    def _judge(self, case: Measured, backend: str, attempts: Sequence[Attempt], *, when: str) -> Cell:
        fault, wrong = f"wrong elements over all ranks {when} the timed calls", sum(one.wrong for one in attempts)
        if not case.table.collective.has_data:
            fault, wrong = _EARLY, left_early(attempts, self._hosts)
        return judge(backend, attempts, wrong=wrong if self._check else None, fault=fault)

    def _time(self, case: Measured, candidate: Candidate, attempt: Attempt, *, check: bool) -> None:
        def once() -> None:
            start = time.perf_counter()
            case.run(candidate.group)
            attempt.times_us.append((time.perf_counter() - start) * 1e6)
            attempt.starts_s.append(start)

        case.fill(case.integers)
        self._barrier()
        if attempt.error is None:
            attempt.error = error_of(once)
        if attempt.error is None and check and self._check:
            attempt.wrong += case.count_wrong(case.integers)


def error_of(action: Callable[..., None], *arguments: object) -> HpccommError | None:
    """Run an action and give what it raised."""
    try:
        action(*arguments)
    except HpccommError as error:
        return error
    except Exception as error:
        return BackendError("run the operation", found=f"{type(error).__name__}: {error}", remedy="see there")
    return None
