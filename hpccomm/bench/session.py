"""One run of the benchmark on one rank: world, backends, tables, files, comparison, exit status."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import hpccomm
from hpccomm.bench import candidates, compare, compare_report, definitions, report
from hpccomm.bench.budget import Budget
from hpccomm.bench.environment import describe
from hpccomm.bench.files import Record
from hpccomm.bench.layout import Layout
from hpccomm.bench.measure import Meter, make_barrier
from hpccomm.bench.options import Options
from hpccomm.bench.rows import Row, State
from hpccomm.bench.screen import Screen
from hpccomm.bench.series import Run, Series
from hpccomm.bench.tables import tables
from hpccomm.bench.text import note
from hpccomm.errors import OptionError
from hpccomm.exchange import MpiExchange, agree
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
        The exit status, the same on all ranks: 0; 1 where something was wrong, failed, or slower than before; 2 for a
        bad option.
    """
    backend = "auto" if launch.launcher is ALONE else "mpi4py" if launch.uses_mpi else "gloo"
    with hpccomm.init(backend, timeout_s=max(_START_S, 2 * options.timeout_s)) as world:
        screen.speaks = world.topology.rank == 0
        session = _Session(world, options, screen)
        try:
            session.prepare(launch, command_line)
        except OptionError as error:
            screen.say([f"python -m hpccomm.bench: {error}"], file=sys.stderr)
            status = 2
        else:
            status = session.measure()
        screen.ended = True
        return status


class _Session:
    """What the steps between the start of the world and its end share."""

    def __init__(self, world: hpccomm.World, options: Options, screen: Screen) -> None:
        self._world, self._options, self._screen = world, options, screen
        self._exchange = world.exchange
        self._ranks = world.topology.world_size
        asked = tables(options)
        self._tables = [table for table in asked if table.collective.fewest_ranks <= self._ranks]
        self._impossible = [table for table in asked if table not in self._tables]
        self._old: compare.Recorded | None = None

    def prepare(self, launch: Launch, command_line: str) -> None:
        """Make the groups, begin the files, and print what stands above the tables; collective.

        Raises:
            OptionError: A file cannot be written, or not be read and compared with.
        """
        self._screen.progress.show("making groups")
        self._make_groups()
        topology = self._world.topology
        environment = describe(self._exchange, topology, launch, command_line=command_line)
        meanings = definitions.definitions([table.collective for table in self._tables], self._ranks)
        self._environment = {**environment.entries(), "definitions": meanings, "not_built": self._missing}
        self._open_files(self._environment)
        self._screen.say(report.header(environment, bold=self._screen.bold, wide=self._options.wide))
        self._screen.say(report.not_built(self._missing))
        for table in self._impossible:
            self._screen.say(note(f"left out: {table.title}, which needs {table.collective.fewest_ranks} ranks"))
        backends = tuple(one.expression for one in self._candidates)
        self._screen.say(report.legend(Layout(backends, wide=self._options.wide)))

    def _make_groups(self) -> None:
        options, has_mpi = self._options, isinstance(self._exchange, MpiExchange)
        found = candidates.read(self._exchange, options.backends)
        more = candidates.over_leaves(options.algorithms, has_mpi=has_mpi)
        if not (options.backends or options.algorithms):
            more = candidates.defaults(self._world.topology, has_mpi=has_mpi)
        found = candidates.different([*found, *map(candidates.Candidate, more)])
        candidates.build(found, timeout_s=options.timeout_s)
        self._candidates = [one for one in found if one.dropped is None]
        self._missing = {one.expression: one.dropped for one in found if one.dropped is not None}
        self._failed = not self._candidates or any(one.required for one in found if one.dropped is not None)

    def _open_files(self, environment: Mapping[str, object]) -> None:
        options, error = self._options, None
        writes = self._screen.speaks
        try:
            if options.compare and writes:
                self._old = compare.load(options.compare[0])
                compare.refuse_strangers(self._old, _THIS_RUN, [table.what(self._ranks) for table in self._tables])
            self._record = Record(
                environment, json_path=options.json if writes else None, csv_path=options.csv if writes else None
            )
        except OptionError as caught:
            error = caught
        agree(self._exchange, error)

    def measure(self) -> int:
        """Measure table after table, and give the exit status; collective."""
        options, world = self._options, self._world
        barrier = make_barrier(self._exchange, crowded=world.crowded)
        hosts = world.topology.hosts
        meter = Meter(self._exchange, barrier, hosts, check=options.check, warmup_iters=options.warmup_iters)
        common = Run(options, world.topology, self._exchange, meter, self._screen, self._record)
        rows: list[Row] = []
        left_s = options.budget_s
        for number, table in enumerate(self._tables if self._candidates else ()):
            candidates.revive(self._candidates, timeout_s=options.timeout_s)
            budget = Budget(max(0.0, left_s / (len(self._tables) - number)), options.iterations)
            rows += Series(common, table, self._candidates, budget).measure()
            left_s -= budget.used_s
        self._record.finish()
        self._screen.say(report.closing(checked=options.check) if rows else [])
        wrong = any(row.has(State.WRONG) or row.has(State.FAILED) for row in rows)
        return int(self._compare() or wrong or self._failed or not rows)

    def _compare(self) -> bool:
        """Compare with the old run, if one was given, and tell whether this one is worse; collective."""
        fails = False
        if self._old is not None:
            new = compare.Recorded(_THIS_RUN, self._environment, self._record.results)
            found = compare.compare(self._old, new, self._options.tolerance)
            self._screen.say(compare_report.lines(found, strong=self._screen.strong))
            fails = found.fails
        return self._exchange.all_gather(fails)[0]
