"""One run of the benchmark on one rank: world, backends, sizes within the budget, table, file, exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

import torch

import hpccomm
from hpccomm.bench import candidates, report
from hpccomm.bench.budget import Budget
from hpccomm.bench.case import Case
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.environment import describe
from hpccomm.bench.measure import Meter, make_barrier
from hpccomm.bench.metrics import definitions
from hpccomm.bench.options import Options, sizes
from hpccomm.bench.progress import Progress
from hpccomm.bench.record import Record, entries
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.errors import OptionError
from hpccomm.exchange import MpiExchange, agree
from hpccomm.launch import ALONE, Launch
from hpccomm.units import format_bytes, format_seconds

_START_S = 120.0


def run(options: Options, launch: Launch, progress: Progress, *, command_line: str, bold: bool) -> int:
    """Run the benchmark; collective.

    Args:
        options: The same on all ranks.
        launch: What started the ranks.
        progress: Enabled on rank 0 at most.
        command_line: For the reader.
        bold: Whether the table may use bold text.

    Returns:
        The exit status, the same on all ranks: 0; 1 where something was wrong or failed; 2 for a bad option.
    """
    backend = "auto" if launch.launcher is ALONE else "mpi4py" if launch.uses_mpi else "gloo"
    with hpccomm.init(backend, timeout_s=max(_START_S, 2 * options.timeout_s)) as world:
        session = _Session(world, options, progress)
        try:
            session.prepare(launch, command_line, bold=bold)
        except OptionError as error:
            session.say([f"python -m hpccomm.bench: {error}"], file=sys.stderr)
            return 2
        return session.measure()


class _Session:
    """What the steps between the start of the world and its end share."""

    def __init__(self, world: hpccomm.World, options: Options, progress: Progress) -> None:
        self._world, self._options, self._progress = world, options, progress
        self._exchange = world.exchange
        self._rank, self._ranks = world.topology.rank, world.topology.world_size
        self._collective = COLLECTIVES[options.collective]
        self._dtype: torch.dtype = getattr(torch, options.dtype)
        self._factor = self._collective.bus_factor(self._ranks)
        self._sizes = sizes(options, itemsize=self._dtype.itemsize, ranks=self._ranks)
        self._rows: list[Row] = []

    def say(self, lines: Sequence[str], *, file: TextIO | None = None) -> None:
        """Print lines on rank 0 at once: an interrupted launcher may forward nothing that comes later."""
        self._progress.clear()
        if self._rank == 0 and lines:
            print("\n".join(lines), file=file, flush=True)

    def prepare(self, launch: Launch, command_line: str, *, bold: bool) -> None:
        """Make the groups, begin the file, and print what stands above the table; collective.

        Raises:
            OptionError: The file cannot be written.
        """
        self._make_groups()
        environment = describe(self._exchange, self._world.topology, launch, command_line=command_line)
        meanings = definitions(self._collective.formula, self._ranks, self._factor)
        self._begin_record({**entries(environment, meanings), "not_built": self._missing})
        backends = tuple(column.expression for column in self._columns)
        self._layout = report.Layout(backends, tuple(self._sizes), bold)
        words = (self._options.collective, self._options.op, "of", self._options.dtype)
        title = f"{' '.join(filter(None, words))}, {'in' if self._collective.in_place else 'out of'} place"
        self.say(report.header(title, environment, meanings, self._layout))
        self.say(report.not_built(self._missing))
        self.say(report.head(self._layout) if self._columns else [])

    def _make_groups(self) -> None:
        self._progress.show("making groups")
        has_mpi = isinstance(self._exchange, MpiExchange)
        texts = self._options.backends or candidates.defaults(self._world.topology, has_mpi=has_mpi)
        columns = candidates.read(self._exchange, texts)
        candidates.build(columns, start_s=_START_S, timeout_s=self._options.timeout_s)
        self._columns = [column for column in columns if column.dropped is None]
        self._missing = {column.expression: column.dropped for column in columns if column.dropped is not None}

    def _begin_record(self, environment: dict[str, object]) -> None:
        options, error = self._options, None
        what = {"collective": options.collective, "dtype": options.dtype, "op": options.op}
        path = options.json if self._rank == 0 else None
        try:
            self._record = Record(path, environment, what=what, factor=self._factor)
        except OptionError as caught:
            error = caught
        agree(self._exchange, error)

    def measure(self) -> int:
        """Measure size after size, print and record each row, and give the exit status; collective."""
        options, left_out = self._options, None
        budget = Budget(options.budget_s, options.iterations)
        barrier = make_barrier(self._exchange, crowded=self._world.crowded)
        meter = Meter(self._exchange, barrier, check=options.check, warmup_iters=options.warmup_iters)
        for place, size in enumerate(self._sizes):
            left_out = self._exchange.all_gather(self._why_stop(budget, place))[0]
            if left_out:
                break
            budget.start(len(self._sizes) - place)
            row = self._measure_size(meter, budget, size)
            budget.finish(size, is_typical=not row.has(State.FAILED))
            self._rows.append(row)
            self._record.add(row)
            self.say(report.row_lines(row, self._layout, self._factor, before=self._rows[:-1]))
        self.say(report.footer(self._rows, self._layout, checked=options.check, left_out=left_out))
        return self._status()

    def _measure_size(self, meter: Meter, budget: Budget, size: int) -> Row:
        count, text = size // self._dtype.itemsize, format_bytes(size)
        case = Case(self._collective, self._options.op, self._dtype, rank=self._rank, ranks=self._ranks, count=count)
        left = [column for column in self._columns if column.dropped is None]
        cells = meter.measure(case, left, budget.choose, show=lambda what: self._progress.step(f"{text}: {what}"))
        row = Row(size, tuple(cells.get(c.expression) or _dropped(c) for c in self._columns))
        for column in left:
            if cells[column.expression].state is State.FAILED:
                column.dropped = f"failed at {text}: {cells[column.expression].error}"
        return row

    def _why_stop(self, budget: Budget, place: int) -> str | None:
        """Say why no further size is measured, if so."""
        size, last = self._sizes[place], self._sizes[-1]
        rest = format_bytes(size) + (f" to {format_bytes(last)}" if last > size else "")
        if all(column.dropped is not None for column in self._columns):
            return f"{rest}, as no backend is left"
        if budget.allows(size):
            return None
        needed, left = format_seconds(budget.estimate(size)), format_seconds(budget.left_s)
        total = self._options.budget_s
        return f"{rest}; {format_bytes(size)} needs about {needed}, {left} of --budget {total:g} are left"

    def _status(self) -> int:
        asked_in_vain = self._missing and self._options.backends
        failed = any(row.has(State.WRONG) or row.has(State.FAILED) for row in self._rows)
        return int(bool(asked_in_vain or failed or not self._columns))


def _dropped(column: candidates.Column) -> Cell:
    return Cell(column.expression, State.DROPPED, error=column.dropped)
