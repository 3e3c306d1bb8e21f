"""One all_reduce over and over until the time is up: drift, spikes, and hosts and ranks that come late."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import count as count_from

import torch

from hpccomm.bench.candidates import Candidate
from hpccomm.bench.case import Case
from hpccomm.bench.collectives import COLLECTIVES, IN
from hpccomm.bench.files import results
from hpccomm.bench.measure import error_of
from hpccomm.bench.metrics import summarize
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.series import Run
from hpccomm.bench.steadiness import DRIFT, REPEATED, RULE, SPIKE, Log, Steadiness
from hpccomm.bench.tables import Table
from hpccomm.bench.text import field, note, strong
from hpccomm.bench.verdict import Attempt, cause
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_seconds, format_us

_PORTION = 20


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Measure the backends one after the other, by the largest size; collective."""
    options, topology = run.options, run.world.topology
    collective = replace(COLLECTIVES["all_reduce"], name=REPEATED, made_of="all_reduce")
    table = Table(collective, topology.world_size, options.dtype, "sum", IN)
    elements = max(1, options.max_bytes // int(getattr(torch, options.dtype).itemsize))
    case = Case(table, rank=topology.rank, count=elements, device=run.device)
    size = elements * case.output.element_size()
    title = strong(f"stability of {table.title}, {format_bytes(size)}")
    run.screen.say(["", title, *field("rule", RULE)])
    rows = []
    for candidate in built:
        cell, found = repeat(run, case, candidate, budget_s / len(built))
        row = Row(size, (cell,))
        run.record.add(results(row, table))
        if found is not None:
            run.record.add_section("stability", {"backend": cell.backend, "size_bytes": size, **found.entries()})
        run.screen.say(note(f"{cell.backend}: {cell.error}", "") if found is None else lines(cell.backend, found))
        rows.append(row)
    return rows


def repeat(run: Run, case: Case, candidate: Candidate, budget_s: float) -> tuple[Cell, Steadiness | None]:
    """Call portion after portion until rank 0 says that the time is up, or one went wrong; the first is to warm up."""
    exchange, topology, name = run.world.exchange, run.world.topology, candidate.expression
    if candidate.dropped is not None:
        return Cell(name, State.DROPPED, error=candidate.dropped), None
    log, begun, skews = Log(), time.monotonic(), []
    for number in count_from(0):
        run.screen.progress.step(f"stability of {name}: {len(log.times_us)} calls")
        attempt = _portion(case, candidate, check=run.options.check)
        is_over = number > 0 and time.monotonic() - begun >= budget_s
        gathered = exchange.all_gather((attempt, is_over))
        attempts = [one for one, _ in gathered]
        errors = {rank: one.error for rank, one in enumerate(attempts) if one.error is not None}
        if errors:
            return Cell(name, State.FAILED, error=cause(errors, len(attempts))), None
        if any(one.wrong for one in attempts):
            wrong = sum(one.wrong for one in attempts)
            return Cell(name, State.WRONG, wrong=wrong, error=f"wrong elements over all ranks: {wrong}"), None
        if number == 0:
            begun = time.monotonic()
            continue
        of_ranks = [one.times_us for one in attempts]
        log.add(of_ranks)
        skews += [max(times) - min(times) for times in zip(*of_ranks, strict=True)]
        if gathered[0][1]:
            break
    found = log.judge(topology.hosts, topology.hostnames, seconds=time.monotonic() - begun)
    return Cell(name, State.MEASURED, summarize(log.times_us, skews), 0 if run.options.check else None), found


def _portion(case: Case, candidate: Candidate, *, check: bool) -> Attempt:
    """Make some calls, each right after its tensor is filled, and check the last one's result."""
    attempt = Attempt()

    def once() -> None:
        case.fill(case.integers)
        start = time.perf_counter()
        case.run(candidate.group)
        attempt.times_us.append((time.perf_counter() - start) * 1e6)

    for _ in range(_PORTION):
        attempt.error = attempt.error or error_of(once)
    if check and attempt.error is None:
        attempt.wrong = case.count_wrong(case.integers)
    return attempt


def lines(backend: str, found: Steadiness) -> list[str]:
    """Show what was found of one backend."""
    calls = f"{count(found.calls, 'call')} in {format_seconds(found.seconds)}, median {format_us(found.median_us)} us"
    longest = f"longest {format_us(found.longest_us)} us, call {found.longest_at}"
    remarks = [f"{count(found.spikes, 'spike')} above {SPIKE:g} x median; {longest}"]
    remarks.append(f"drift {found.drift:+.0%}" + " from the first fifth to the last" * (abs(found.drift) >= DRIFT))
    late = [
        f"straggler: {one.name}, {format_us(one.late_us)} us late in the median call, the last in {one.last:.0%} of all"
        for one in found.stragglers
    ]
    shown = ["", f"{strong(backend)}: {calls}"]
    return shown + [line for text in remarks + (late or ["no host or rank is a straggler"]) for line in note(text)]
