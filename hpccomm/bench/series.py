"""One table, on this rank together with all others: size after size within a budget, each row shown and recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from hpccomm import World
from hpccomm.bench import report
from hpccomm.bench.budget import Budget
from hpccomm.bench.candidates import Candidate
from hpccomm.bench.case import Case
from hpccomm.bench.facts import facts
from hpccomm.bench.files import Record, results
from hpccomm.bench.layout import Layout
from hpccomm.bench.measure import Meter
from hpccomm.bench.options import Options
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.screen import Screen
from hpccomm.bench.tables import Table, sizes
from hpccomm.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Run:
    """What all tables of a run share: the user's wishes, the ranks, and where results go."""

    options: Options
    world: World
    meter: Meter
    screen: Screen
    record: Record


class Series:
    """The sizes of one table.

    Args:
        run: What all tables share.
        table: The table.
        candidates: The backends; one that fails is marked as dropped.
        budget: The time for this table.
    """

    def __init__(self, run: Run, table: Table, candidates: Sequence[Candidate], budget: Budget) -> None:
        self._run, self._table, self._candidates, self._budget = run, table, candidates, budget
        self._itemsize: int = getattr(torch, table.dtype).itemsize
        self._sizes = sizes(table, run.options, itemsize=self._itemsize)
        self._facts = {candidate.expression: facts(table, candidate, run.world.topology) for candidate in candidates}
        self._layout = Layout(
            tuple(self._facts),
            tuple(self._sizes),
            factor=table.factor,
            wide=run.options.wide,
        )
        self._rows: list[Row] = []

    def measure(self) -> Sequence[Row]:
        """Show the table as it is measured, and give its rows; collective."""
        layout, screen, left_out = self._layout, self._run.screen, None
        remarks = [f"{layout.name(name)}: {one.remark}" for name, one in self._facts.items() if one.remark]
        screen.say(report.head(self._table, layout, remarks))
        for place, size in enumerate(self._sizes):
            left_out = self._run.world.exchange.all_gather(self._why_stop(place))[0]
            if left_out:
                break
            self._budget.start(len(self._sizes) - place)
            row = self._measure_size(size)
            self._budget.finish(size, is_typical=not row.has(State.FAILED))
            self._publish(row)
        screen.say(report.footer(self._rows, layout, left_out=left_out))
        return self._rows

    def _measure_size(self, size: int) -> Row:
        text, screen = format_bytes(size), self._run.screen
        world, count = self._run.world, size // self._itemsize
        device = world.device if self._run.options.device == "cuda" else torch.device("cpu")
        case = Case(self._table, rank=world.topology.rank, count=count, device=device)
        left = [candidate for candidate in self._candidates if candidate.dropped is None]

        def show(what: str) -> None:
            screen.progress.step(f"{self._table.collective.name} of {text}: {what}")

        cells = self._run.meter.measure(case, left, self._budget.choose, show=show)
        cells |= {
            candidate.expression: Cell(candidate.expression, State.DROPPED, error=candidate.dropped)
            for candidate in self._candidates
            if candidate.dropped is not None
        }
        for candidate in left:
            if cells[candidate.expression].state is State.FAILED:
                candidate.dropped = f"failed at {text}: {cells[candidate.expression].error}"
        for candidate in left:
            if notes := tuple(candidate.group._runner.backend.fell_back):
                cells[candidate.expression] = replace(cells[candidate.expression], fell_back=notes)
        return Row(size, tuple(known.noted(cells[name], size) for name, known in self._facts.items()))

    def _publish(self, row: Row) -> None:
        screen = self._run.screen
        with screen.lock:
            self._run.record.add(results(row, self._table))
            screen.say(report.row_lines(row, self._layout, before=self._rows))
            screen.rows += 1
        self._rows.append(row)

    def _why_stop(self, place: int) -> str | None:
        """Say why no further size is measured, if so."""
        size, last = self._sizes[place], self._sizes[-1]
        rest = format_bytes(size) + (f" to {format_bytes(last)}" if last > size else "")
        if all(candidate.dropped is not None for candidate in self._candidates):
            return f"{rest}, as no backend is left"
        if self._budget.allows(size):
            return None
        needed, left = format_seconds(self._budget.estimate(size)), format_seconds(self._budget.left_s)
        total = self._run.options.budget_s
        return f"{rest}; {format_bytes(size)} needs about {needed}, {left} of its share of --budget {total:g} are left"
