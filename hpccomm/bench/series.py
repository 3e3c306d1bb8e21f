"""One table, on this rank together with all others: size after size within a budget, each row shown and recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
from hpccomm.bench.measure import Measured, Meter
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

    @property
    def device(self) -> torch.device:
        """Where tensors are."""
        return self.world.device if self.options.device == "cuda" else torch.device("cpu")


@dataclass(frozen=True)
class Cases:
    """What is measured in a table.

    Attributes:
        sizes: In bytes, ascending.
        make: Makes the case of a size.
        ranks: That take part; the candidates' groups are theirs.
        moves_bytes: What a case moves, where that is not its size.
        notes: What the reader must know of it.
    """

    sizes: Sequence[int]
    make: Callable[[int], Measured]
    ranks: Sequence[int]
    moves_bytes: int | None = None
    notes: tuple[str, ...] = ()


def usual(run: Run, table: Table) -> Cases:
    """Give the table's collective on all ranks, once a case, at the sizes that were asked for."""
    itemsize: int = getattr(torch, table.dtype).itemsize
    topology = run.world.topology

    def make(size: int) -> Case:
        return Case(table, rank=topology.rank, count=size // itemsize, device=run.device)

    return Cases(sizes(table, run.options, itemsize=itemsize), make, range(topology.world_size))


class Series:
    """The sizes of one table.

    Args:
        run: What all tables share.
        table: The table.
        candidates: The backends; one that fails is marked as dropped.
        budget: The time for this table.
        cases: What is measured; None for the table's collective.
    """

    def __init__(
        self, run: Run, table: Table, candidates: Sequence[Candidate], budget: Budget, cases: Cases | None = None
    ) -> None:
        self._run, self._table, self._candidates, self._budget = run, table, candidates, budget
        self._cases = cases or usual(run, table)
        self._sizes = self._cases.sizes
        topology = run.world.topology.subset(self._cases.ranks)
        self._facts = {candidate.expression: facts(table, candidate, topology) for candidate in candidates}
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
        screen.say(report.head(self._table, layout, [*self._cases.notes, *remarks]))
        for place, size in enumerate(self._sizes):
            left_out = self._run.world.exchange.all_gather(self._why_stop(place))[0]
            if left_out:
                break
            self._budget.start(len(self._sizes) - place)
            row = self._measure_size(size)
            self._budget.finish(row.moved_bytes, is_typical=not row.has(State.FAILED))
            self._publish(row)
        screen.say(report.footer(self._rows, layout, left_out=left_out))
        return self._rows

    def _measure_size(self, size: int) -> Row:
        text, screen = format_bytes(size), self._run.screen
        case = self._cases.make(size)
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
        row = Row(size, (), self._cases.moves_bytes)
        noted = tuple(known.noted(cells[name], row.moved_bytes) for name, known in self._facts.items())
        return replace(row, cells=noted)

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
        moves = size if self._cases.moves_bytes is None else self._cases.moves_bytes
        if self._budget.allows(moves):
            return None
        needed, left = format_seconds(self._budget.estimate(moves)), format_seconds(self._budget.left_s)
        total = self._run.options.budget_s
        return f"{rest}; {format_bytes(size)} needs about {needed}, {left} of its share of --budget {total:g} are left"
