"""What a step of data, tensor and pipeline parallel training sends, and how long that takes with each backend.

Every kind of operation is measured in groups of its own ranks, all groups at once, and counted as often as a step has
it: a step's time is that of its operations one after the other, none hidden under computation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import torch

from hpccomm.bench.budget import Budget
from hpccomm.bench.candidates import Candidate, within
from hpccomm.bench.case import Case
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.models import TRANSFORMERS
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Cases, Run, Series
from hpccomm.bench.tables import Table
from hpccomm.bench.text import field, strong
from hpccomm.bench.traffic import STEP, Medians, Parallel, Timed, Traffic, layer_us, parallel, step_us, traffic
from hpccomm.topology.grouping import count
from hpccomm.units import format_seconds

MODEL = "gpt3-1.3b"
BATCH = 8


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Measure each kind of operation; collective."""
    options, topology = run.options, run.world.topology
    ways = parallel(topology.sizes, tp=options.tp, pp=options.pp, dp=options.dp)
    name, batch = options.model or MODEL, options.batch or BATCH
    kinds = traffic(TRANSFORMERS[name], ways, batch=batch, scale=options.scale)
    shrunk = f", every operation's elements / {options.scale}" * (options.scale > 1)
    run.screen.say(["", strong(f"a step of {name}, {ways}, {batch} micro-batches of one sequence{shrunk}")])
    rows = {kind: _measure(run, built, budget_s / len(kinds), ways, kind) for kind in kinds}
    medians = _medians(rows)
    run.screen.say(lines(kinds, medians))
    for backend, times_us in medians.items():
        run.record.add_section("workloads", {
            "model": name,
            "scale": options.scale,
            "micro_batches": batch,
            **asdict(ways),
            "backend": backend,
            "layer_us": layer_us(kinds, times_us),
            "step_us": step_us(kinds, times_us),
            "kinds": [asdict(_timed(kind, rows[kind], times_us)) for kind in kinds],
        })  # fmt: skip
    return list(rows.values())


def _measure(run: Run, built: Sequence[Candidate], budget_s: float, ways: Parallel, kind: Traffic) -> Row:
    """Measure one kind of operation in its groups."""
    world, options = run.world, run.options
    ranks = next(group for group in ways.groups(kind.kind) if world.topology.rank in group)
    candidates = within(built, ranks, world.exchange, timeout_s=options.timeout_s)
    collective = COLLECTIVES[kind.collective]
    table = Table(collective, len(ranks), options.dtype, kind.op, collective.places[0])
    size = kind.elements * int(getattr(torch, options.dtype).itemsize)

    def make(_: int) -> Case:
        return Case(table, rank=ranks.index(world.topology.rank), count=kind.elements, device=run.device)

    groups = f"{count(len(ways.groups(kind.kind)), 'group')} of {count(len(ranks), 'rank')} at once"
    note = f"{kind.kind} parallel, {groups}: {kind.what}, {kind.step} times a step"
    budget = Budget(budget_s, options.iterations)
    (row,) = Series(run, table, candidates, budget, Cases((size,), make, ranks, notes=(note,))).measure()
    return row


def _medians(rows: Mapping[Traffic, Row]) -> dict[str, Medians]:
    """Give the times of each backend that has all of them."""
    found: dict[str, dict[str, float]] = {}
    for kind, row in rows.items():
        for cell in row.cells:
            if cell.times:
                found.setdefault(cell.backend, {})[kind.kind] = cell.times.median_us
    return {backend: times for backend, times in found.items() if len(times) == len(rows)}


def _timed(kind: Traffic, row: Row, times_us: Medians) -> Timed:
    return Timed(**asdict(kind), size_bytes=row.size_bytes, time_us=times_us[kind.kind])


def lines(kinds: Sequence[Traffic], medians: Mapping[str, Medians]) -> list[str]:
    """Show what a layer and a step take with each backend, and which kind takes how much of it."""
    names = [kind.kind for kind in kinds]
    shown = ["", *field("step", STEP)]
    shown.append(f"{'layer':>12} {'step':>12}" + "".join(f" {name:>9}" for name in names) + "  backend")
    best = min(medians, key=lambda backend: step_us(kinds, medians[backend]), default=None)
    for backend, times_us in medians.items():
        layer, step = layer_us(kinds, times_us), step_us(kinds, times_us)
        shares = "".join(f" {100 * kind.step * times_us[kind.kind] / step:>7.0f} %" for kind in kinds)
        line = f"{format_seconds(layer / 1e6):>12} {format_seconds(step / 1e6):>12}{shares}  {backend}"
        shown.append(strong(f"{line} *") if backend == best else line)
    return shown
