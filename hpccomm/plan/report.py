"""From a fit and an outlook to what the user reads, and to what programs read; pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hpccomm.cost import Link
from hpccomm.plan.fitted import HIDDEN, Fit, Range, Residual
from hpccomm.plan.outlook import Cell, Outlook, backend
from hpccomm.plan.thumb import Verdict
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

_STYLES = ("green", "cyan", "yellow", "magenta", "blue", "red", "white")
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_OUTSIDE = "~"


def report(fit: Fit, outlook: Outlook, left_out: Mapping[str, int], verdicts: Sequence[Verdict]) -> RenderableType:
    """Give the whole report; without verdicts there is no table of the rule of thumb."""
    letters = dict(zip(outlook.names, _LETTERS, strict=False))
    parts: list[RenderableType] = [*_fit(fit, left_out), "", *_times(fit, outlook, letters)]
    parts += ["", *_map(outlook, letters)]
    if verdicts:
        parts += ["", *_thumb(verdicts, outlook, letters)]
    return Lines(*parts)


def entries(fit: Fit, outlook: Outlook, left_out: Mapping[str, int], verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Give all of it as JSON takes it; times in microseconds, rates in bytes per second, None where there is none."""
    limit = fit.injection_bytes_per_s
    carrier = fit.residuals[0].observation.carrier
    return {
        "fit": {
            "carrier": carrier,
            "intra": None if fit.hides_intra else _link_entries(fit.intra),
            "hides_intra": fit.hides_intra,
            "inter": _link_entries(fit.inter),
            "injection_bytes_per_s": limit if math.isfinite(limit) else None,
            "gamma_s_per_byte": fit.gamma_s_per_byte,
            "relative_standard_errors": fit.errors,
            "measured": {name: [one.least, one.most] for name, one in _ranges(fit).items()},
            "left_out": dict(left_out),
            "rows": [_residual_entries(one) for one in fit.residuals],
        },
        "collective": outlook.collective,
        "ranks_per_node": outlook.ranks_per_node,
        "backends": {name: backend(name, carrier) for name in outlook.names},
        "cells": [_cell_entries(cell, outlook.ranks_per_node) for cell in outlook.cells],
        "rule_of_thumb": [
            {"nodes": one.cell.num_nodes, "size_bytes": one.cell.nbytes, "rule": one.rule, "times_best": one.ratio}
            for one in verdicts
        ],
    }


def _fit(fit: Fit, left_out: Mapping[str, int]) -> Iterator[RenderableType]:
    carrier = fit.residuals[0].observation.carrier
    yield Text(f"links over {carrier}, fitted to {count(len(fit.residuals), 'row')} (± standard error)", "bold")
    for name, level, link in (("inside nodes", "intra", fit.intra), ("between nodes", "inter", fit.inter)):
        if level == "intra" and fit.hides_intra:
            yield f"  {name:<14} {HIDDEN}"
        elif link is not None:
            alpha = f"alpha {format_us(link.alpha_s * 1e6)} us{_error(fit, f'{level}.alpha')}"
            yield f"  {name:<14} {alpha}, {_rate(link.beta_s_per_byte)}{_error(fit, f'{level}.beta')}"
    if math.isfinite(fit.injection_bytes_per_s):
        yield f"  {'a node sends':<14} {_rate(1 / fit.injection_bytes_per_s)}{_error(fit, 'injection')} in all"
    elif fit.inter is not None:
        most = fit.ranks_per_node.most
        yield f"  {'a node sends':<14} without a limit that {count(most, 'rank')} a node would show"
    if "gamma" in fit.errors and fit.gamma_s_per_byte > 0:
        yield f"  {'reductions':<14} {_rate(fit.gamma_s_per_byte)}{_error(fit, 'gamma')}"
    ranges = ", ".join(f"{name} {_range_text(name, one)}" for name, one in _ranges(fit).items())
    yield f"  measured for   {ranges}"
    for reason, number in left_out.items():
        yield f"  left out       {count(number, 'row')}: {reason}"
    yield ""
    yield _residuals(fit.residuals)


def _error(fit: Fit, name: str) -> str:
    error = fit.errors.get(name)
    if error is None:
        return ""
    return f" ± {error * 100:.0f} %" if error < 1 else " (hardly known: the rows do not depend on it much)"


def _rate(seconds_per_byte: float) -> str:
    return f"{1 / seconds_per_byte / 1e9:.4g} GB/s" if seconds_per_byte > 0 else "no cost a byte"


def _ranges(fit: Fit) -> dict[str, Range]:
    return {"ranks": fit.ranks, "nodes": fit.nodes, "ranks per node": fit.ranks_per_node, "size": fit.sizes}


def _range_text(name: str, measured: Range) -> str:
    ends = [format_bytes(end) if name == "size" else str(end) for end in (measured.least, measured.most)]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _residuals(residuals: Sequence[Residual]) -> Table:
    """Show what the fit leaves unexplained, a line a backend and number of nodes."""
    table = _table("residuals: predicted over measured, minus 1", "ranks", "nodes", "collective", "backend", "rows")
    for head in ("median", "lowest", "highest"):
        table.add_column(head, justify="right")

    def key(one: Residual) -> tuple[int, int, str, str]:
        row = one.observation
        return len(row.nodes), len({*row.nodes}), row.collective, row.backend

    for (ranks, nodes, *names), group in groupby(sorted(residuals, key=key), key=key):
        rows = sorted(group, key=lambda one: one.error)
        ends = [f"{_percent(rows[end].error)} at {format_bytes(rows[end].observation.nbytes)}" for end in (0, -1)]
        middle = _percent(statistics.median(one.error for one in rows))
        table.add_row(str(ranks), str(nodes), *map(str, names), str(len(rows)), middle, *ends)
    return table


def _times(fit: Fit, outlook: Outlook, letters: Mapping[str, str]) -> Iterator[RenderableType]:
    """Show all algorithms' times at the scale that was asked for."""
    cells = outlook.at(outlook.nodes[-1])
    nodes, ranks = outlook.nodes[-1], outlook.nodes[-1] * outlook.ranks_per_node
    title = f"{outlook.collective} on {count(ranks, 'rank')} of {count(nodes, 'node')}, predicted, in us; * is the best"
    table = _table(title, "", "algorithm")
    for cell in cells:
        table.add_column(_marked(format_bytes(cell.nbytes), cell), justify="right")
    for name in cells[0].times_s:
        times = [f"{format_us(cell.times_s[name] * 1e6)}{'*' if name == cell.best else ' '}" for cell in cells]
        table.add_row(Text(letters[name], _style(letters[name])), name, *times)
    yield table
    outside = sorted({what for cell in cells for what in cell.extrapolated})
    if outside:
        yield f"  {_OUTSIDE} extrapolated: {', '.join(outside)} outside of what was measured"
    carrier = fit.residuals[0].observation.carrier
    for best, group in groupby(cells, key=lambda cell: cell.best):
        sizes = [format_bytes(cell.nbytes) for cell in group]
        yield f"  {sizes[0] if len(sizes) == 1 else f'{sizes[0]} to {sizes[-1]}'}: {backend(best, carrier)}"


def _map(outlook: Outlook, letters: Mapping[str, str]) -> Iterator[RenderableType]:
    """Show the best algorithm over sizes and nodes."""
    table = _table(f"best {outlook.collective} by size and nodes of {count(outlook.ranks_per_node, 'rank')}", "size")
    for nodes in outlook.nodes:
        table.add_column(str(nodes), justify="center")
    for place, nbytes in enumerate(outlook.sizes):
        row = [outlook.at(nodes)[place] for nodes in outlook.nodes]
        table.add_row(format_bytes(nbytes), *(_letter(letters[cell.best], cell) for cell in row))
    yield table
    if any(cell.extrapolated for cell in outlook.cells):
        yield f"  {_OUTSIDE}  extrapolated"
    found = dict.fromkeys(cell.best for cell in outlook.cells)
    yield from (f"  {letters[name]}  {name}" for name in sorted(found, key=letters.__getitem__))


def _thumb(verdicts: Sequence[Verdict], outlook: Outlook, letters: Mapping[str, str]) -> Iterator[RenderableType]:
    """Show what the rule of thumb costs."""
    table = _table("rule of thumb: time of its choice over the best one's, and the best one", "nodes", "it takes")
    for nbytes in outlook.sizes:
        table.add_column(format_bytes(nbytes), justify="right")
    for nodes, group in groupby(verdicts, key=lambda one: one.cell.num_nodes):
        row = list(group)
        texts = [_marked(f"{one.ratio:.3g} {letters[one.cell.best]}", one.cell) for one in row]
        table.add_row(str(nodes), row[0].rule.partition("(")[0], *texts)
    yield table
    yield "  it says: ring up to 8 ranks, tree on 4 to 16 nodes, a hierarchy (here its best) from 100 nodes on"


def _table(title: str, *heads: str) -> Table:
    table = Table(*heads, title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.padding = (0, 1)
    return table


def _marked(text: str, cell: Cell) -> str:
    return f"{_OUTSIDE}{text}" if cell.extrapolated else text


def _letter(letter: str, cell: Cell) -> Text:
    return Text(_marked(letter, cell), _style(letter))


def _style(letter: str) -> str:
    place = _LETTERS.index(letter)
    return f"{'bold ' if place >= len(_STYLES) else ''}{_STYLES[place % len(_STYLES)]}"


def _percent(part: float) -> str:
    return f"{part * 100:+.0f} %"


def _link_entries(link: Link | None) -> dict[str, float] | None:
    return None if link is None else {"alpha_us": link.alpha_s * 1e6, "beta_s_per_byte": link.beta_s_per_byte}


def _residual_entries(one: Residual) -> dict[str, Any]:
    row = one.observation
    return {
        "file": row.file,
        "ranks": len(row.nodes),
        "nodes": len({*row.nodes}),
        "collective": row.collective,
        "backend": row.backend,
        "algorithm": row.algorithm.name,
        "size_bytes": row.nbytes,
        "measured_us": row.seconds * 1e6,
        "predicted_us": one.predicted_s * 1e6,
    }


def _cell_entries(cell: Cell, ranks_per_node: int) -> dict[str, Any]:
    return {
        "nodes": cell.num_nodes,
        "ranks": cell.num_nodes * ranks_per_node,
        "size_bytes": cell.nbytes,
        "best": cell.best,
        "extrapolated": list(cell.extrapolated),
        "times_us": {name: time * 1e6 for name, time in cell.times_s.items()},
    }
