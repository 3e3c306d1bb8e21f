"""One run of the benchmark on one rank: world, backends, tables, files, comparison, exit status."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import hpccomm
from hpccomm.bench import advice_report, candidates, gate, measures, page, report
from hpccomm.bench.budget import Budget
from hpccomm.bench.candidates import Candidate
from hpccomm.bench.compare import Recorded, compare, load, refuse_strangers
from hpccomm.bench.compare_report import lines
from hpccomm.bench.definitions import definitions
from hpccomm.bench.environment import describe
from hpccomm.bench.files import Record
from hpccomm.bench.layout import Layout
from hpccomm.bench.measure import Meter, make_barrier
from hpccomm.bench.options import Options
from hpccomm.bench.page.advice import advice
from hpccomm.bench.page.runs import read
from hpccomm.bench.pairs import series as pairs
from hpccomm.bench.pairs.matrix import Matrix
from hpccomm.bench.rows import Row
from hpccomm.bench.screen import Screen
from hpccomm.bench.series import Run, Series
from hpccomm.bench.startup import Watch
from hpccomm.bench.tables import Table, tables
from hpccomm.bench.text import field, note, strong
from hpccomm.bench.traffic import parallel
from hpccomm.bootstrap.tracing import VARIABLE as TRACE
from hpccomm.errors import OptionError
from hpccomm.exchange import together
from hpccomm.launch import ALONE, Launch

_START_S = 120.0
_THIS_RUN = "this run"


def run(options: Options, launch: Launch, screen: Screen, *, command_line: str) -> int:
    """Run the benchmark; collective.

    Args:
        options: The same on all ranks.
        launch: What started the ranks.
        screen: Where rank 0 writes.
        command_line: For the reader.

    Returns:
        The exit status, the same on all ranks: 0; 1 where something was wrong, failed, or slower than before or than it
        must be; 2 for a bad option.
    """
    backend = "auto" if launch.launcher is ALONE else "mpi4py" if launch.uses_mpi else "gloo"
    watch = Watch()
    if options.trace is not None:
        os.environ[TRACE] = str(options.trace)
    with hpccomm.init(backend, timeout_s=max(_START_S, 2 * options.timeout_s)) as world:
        watch.mark()
        screen.speaks = world.topology.rank == 0
        try:
            _refuse_missing_gpu(world, options)
            if "workloads" in options.measures:
                parallel(world.topology.sizes, tp=options.tp, pp=options.pp, dp=options.dp)
        except OptionError as error:
            return _refuse(error, screen)
        status = _run_in(world, options, launch, screen, watch, command_line=command_line)
        screen.ended = True
        return status


def _refuse_missing_gpu(world: hpccomm.World, options: Options) -> None:
    """Refuse tensors on GPUs where a rank has none; collective."""
    lacking = [rank for rank, kind in enumerate(world.exchange.all_gather(world.device.type)) if kind != options.device]
    if lacking and options.device != "cpu":
        raise OptionError(
            f"measure tensors with --device {options.device}",
            found=f"rank {lacking[0]} of {world.topology.world_size} sees no GPU",
            remedy="start where every rank has a GPU, or leave --device out",
            everywhere=True,
        )


def _run_in(
    world: hpccomm.World, options: Options, launch: Launch, screen: Screen, watch: Watch, *, command_line: str
) -> int:
    screen.progress.show("making groups")
    found = candidates.make(options, world.exchange, world.topology)
    watch.mark()
    start_up = watch.read(world.exchange)
    built = [candidate for candidate in found if candidate.dropped is None]
    not_built = {candidate.expression: candidate.dropped for candidate in found if candidate.dropped is not None}
    ranks = world.topology.world_size
    asked = tables(options, ranks)
    possible = [table for table in asked if table.collective.fewest_ranks <= ranks]

    environment = describe(world.exchange, world.topology, launch, command_line=command_line)
    meanings = definitions([table.collective for table in possible], ranks)
    entries = {
        **environment.entries(),
        "device": options.device,
        **start_up.entries(),
        "definitions": meanings,
        "not_built": not_built,
    }
    try:
        old, record = _open_files(world, options, possible, entries)
    except OptionError as error:
        return _refuse(error, screen)

    screen.say(report.header(environment, wide=options.wide))
    if options.device == "cuda":
        shared = [strong(note) for note in dict.fromkeys(world.exchange.all_gather(world.device_note)) if note]
        screen.say([*field("tensors", "on each rank's GPU; a call ends when the GPU is past it"), *shared])
    screen.say(field("start-up", str(start_up)))
    if options.trace is not None:
        screen.say(field("trace", f"to {options.trace} when the run ends; all times have the making of it in them"))
    screen.say(report.not_built(not_built))
    for table in asked:
        if table not in possible:
            screen.say(note(f"left out: {table.title}, which needs {table.collective.fewest_ranks} ranks"))
    names = tuple(candidate.expression for candidate in built) if possible else ()
    screen.say(report.legend(Layout(names, wide=options.wide)))
    measured = _measure(Run(options, world, _meter(world, options), screen, record), possible, built)
    record.finish()
    screen.say(report.closing(checked=options.check) if measured else [])
    try:
        together(world.exchange, lambda: _report(options, record, screen), "write the report")
    except OptionError as error:
        return _refuse(error, screen)
    is_worse = world.exchange.all_gather(old is not None and _is_worse(old, record, options, screen))[0]
    is_slow = options.min_busbw_gbps is not None and gate.is_missed(record.results, options.min_busbw_gbps)
    screen.say(gate.lines(record.results, options.min_busbw_gbps) if options.min_busbw_gbps is not None else [])
    is_broken = not measured or any(one.is_broken for one in measured)
    is_missed = any(candidate.required and candidate.expression in not_built for candidate in found)
    return int(is_worse or is_slow or is_broken or is_missed)


def _refuse(error: OptionError, screen: Screen) -> int:
    screen.say([f"python -m hpccomm.bench: {error}"], file=sys.stderr)
    return 2


def _report(options: Options, record: Record, screen: Screen) -> None:
    """Show the warnings, and write the report that was asked for, on the rank that speaks."""
    if not screen.speaks:
        return
    matrices, sections = record.sections.get("pairs", ()), record.sections
    run = Recorded(_THIS_RUN, record.environment, record.results, matrices, sections=sections)
    screen.say(advice_report.lines(advice(read(run))))
    if options.report is not None:
        screen.progress.show("writing the report")
        screen.say(page.write(options.report, [run], results=record.text(complete=True)))


def _open_files(
    world: hpccomm.World, options: Options, possible: Sequence[Table], entries: Mapping[str, Any]
) -> tuple[Recorded | None, Record]:
    """Read the old run and begin the files of this one, on rank 0; collective.

    Raises:
        OptionError: On all ranks: a file cannot be written, or not be read and compared with.
    """

    def begin() -> tuple[Recorded | None, Record]:
        if world.exchange.rank:
            return None, Record(entries)
        if options.report is not None:
            page.prepare(options.report)
        old = load(options.compare[0]) if options.compare else None
        if old is not None and not options.measures:
            refuse_strangers(old, _THIS_RUN, [table.what for table in possible])
        return old, Record(entries, json_path=options.json, csv_path=options.csv)

    return together(world.exchange, begin)


def _meter(world: hpccomm.World, options: Options) -> Meter:
    barrier = make_barrier(world.exchange, crowded=world.crowded)
    hosts = world.topology.hosts
    return Meter(world.exchange, barrier, hosts, check=options.check, warmup_iters=options.warmup_iters)


def _measure(run: Run, possible: Sequence[Table], built: Sequence[Candidate]) -> list[Row | Matrix]:
    """Measure tables, pairs, and the rest; collective. What one leaves of its share of the budget is the next ones'."""
    found: list[Row | Matrix] = []
    parts: list[Table | Candidate | str] = [*(possible if built else ()), *pairs.chosen(run, built)]
    parts += run.options.measures if built else ()
    left_s = run.options.budget_s
    for number, part in enumerate(parts):
        candidates.revive(built, timeout_s=run.options.timeout_s)
        budget = Budget(max(0.0, left_s / (len(parts) - number)), run.options.iterations)
        if isinstance(part, Candidate):
            found.append(pairs.measure(run, part, budget.left_s))
        elif isinstance(part, str):
            found += measures.measure(part, run, built, budget.left_s)
        else:
            found += Series(run, part, built, budget).measure()
        left_s -= budget.used_s
    return found


def _is_worse(old: Recorded, record: Record, options: Options, screen: Screen) -> bool:
    found = compare(old, Recorded(_THIS_RUN, record.environment, record.results), options.tolerance)
    screen.say(lines(found))
    return found.fails
