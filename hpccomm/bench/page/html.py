"""The page: ``page.html`` filled in, with its style, script and figures inside; all text is escaped by the template.

A policy in the page lets its own script run and nothing else, and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from hpccomm.bench.layout import format_rate, letter
from hpccomm.bench.page import figures, summary
from hpccomm.bench.page.advice import RULES, advice
from hpccomm.bench.page.runs import Measured, Run
from hpccomm.bench.page.sections import sections
from hpccomm.bench.page.sections.section import Section
from hpccomm.bench.page.shapes import Best, Figure, entries
from hpccomm.bench.pairs.heat import describe, rounds
from hpccomm.bench.pairs.matrix import DEFINITIONS, Matrix
from hpccomm.bench.pairs.outliers import RULE, find
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_us

TITLE = "hpccomm benchmark"
_SCRIPTS = ("elements.js", "curves.js", "heat.js", "bars.js", "page.js")
_MOST_HOSTS = 256
_MOST_SLOW = 30
_NOT_FACTS = ("definitions", "not_built", "node_of_rank", "host_of_rank", "hosts", "start_up_of_ranks")
_HEADLINE = ("date", "launcher", "mpi", "torch", "hpccomm")


def all_figures(runs: Sequence[Run]) -> list[Figure]:
    """Give all figures of a page."""
    palette = figures.colours(runs)
    found: list[Figure] = list(figures.best_maps(runs, palette))
    for place, run in enumerate(runs, 1):
        for number, table in enumerate(run.plain, 1):
            found += figures.of_table(table, f"run{place}-table{number}", palette)
        for number, matrix in enumerate(run.matrices, 1):
            found += figures.of_matrix(matrix, f"run{place}-pairs{number}")
        found += [figure for section in sections(run, palette, f"run{place}") for figure in section.figures]
    return found


def page(runs: Sequence[Run], drawn: Sequence[Figure], images: Mapping[str, Sequence[str]]) -> str:
    """Write the page.

    Args:
        runs: What it is of.
        drawn: What `all_figures` gives of them.
        images: Files beside the page that hold a figure, by the figure's name.
    """
    palette = figures.colours(runs)
    style, script = _file("page.css"), _script()
    template = _environment(images).from_string(_file("page.html"))
    told = [sections(run, palette, f"run{place}") for place, run in enumerate(runs, 1)]
    contents = [_run(run, place, drawn, of_run) for place, (run, of_run) in enumerate(zip(runs, told, strict=True), 1)]
    return template.render(
        title=TITLE,
        runs=contents,
        anchors=_anchors(runs, drawn, told),
        maps=[one for one in drawn if isinstance(one, Best)],
        palette=palette,
        letters={name: letter(place) for name, place in palette.items()},
        definitions={**DEFINITIONS, "slow": RULE.removeprefix("slow: ")},
        summary_rule=summary.RULE,
        rules=RULES,
        style=Markup(style),
        script=Markup(script),
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(_inert({one.name: entries(one) for one in drawn if not isinstance(one, Best)})),
    )


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def _script() -> str:
    """Put the scripts into one function, so that they share their names with each other and with nothing else."""
    return '"use strict";\n(() => {\n' + "\n".join(map(_file, _SCRIPTS)) + "})();\n"


def _environment(images: Mapping[str, Sequence[str]]) -> Environment:
    made = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    made.filters["bytes"] = format_bytes
    made.globals["times"] = _times
    made.globals["links"] = lambda name: _links(images.get(name, ()))
    return made


def _links(files: Sequence[str]) -> Markup:
    found = [Markup('<a href="{}">{}</a>').format(file, file.rpartition(".")[2].upper()) for file in files]
    return Markup('<span class="links">{}</span>').format(Markup(" ").join(found)) if found else Markup("")


def _inert(data: object) -> str:
    """Write JSON in which nothing can end the script element that it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _times(times: Mapping[str, float]) -> str:
    return "\n".join(f"{format_us(times[name])} us  {name}" for name in sorted(times, key=times.__getitem__))


def _anchors(
    runs: Sequence[Run], drawn: Sequence[Figure], told: Sequence[Sequence[Section]]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Give what can be jumped to, by run where there are several: names with their anchors."""
    found = [("summary", "Summary"), ("warnings", "Warnings")]
    found += [("best", "Fastest backend")] if any(isinstance(one, Best) for one in drawn) else []
    lines = [("", found)]
    for place, run in enumerate(runs, 1):
        parts = [(f"tables-{place}", "Times")] if run.plain else []
        parts += [(f"pairs-{place}", "Pairs")] if run.matrices else []
        parts += [(f"{one.anchor}-{place}", one.anchor.capitalize()) for one in told[place - 1]]
        parts += [(f"placement-{place}", "Placement"), (f"environment-{place}", "Environment")]
        if len(runs) > 1:
            lines.append((run.title, parts))
        else:
            found += parts
    return lines


def _run(run: Run, place: int, drawn: Sequence[Figure], told: Sequence[Section]) -> dict[str, Any]:
    listed = [_host(run, number) for number in range(min(len(run.hosts), _MOST_HOSTS))]
    more = len(run.hosts) - len(listed)
    return {
        "title": run.title,
        "headline": "; ".join(
            [run.title, *(_fact(name, run.environment[name]) for name in _HEADLINE if name in run.environment)]
        ),
        "sentences": [*summary.sentences(run), *(text for section in told for text in section.sentences)],
        "advice": advice(run),
        "tables": [_table(table, drawn, f"run{place}-table{number}-") for number, table in enumerate(run.plain, 1)],
        "matrices": [_matrix(one, drawn, f"run{place}-pairs{number}-") for number, one in enumerate(run.matrices, 1)],
        "sections": told,
        "placement": listed,
        "unplaced": f"and {count(more, 'host')} more" if more else "",
        "facts": [(name, _fact_text(value)) for name, value in run.environment.items() if name not in _NOT_FACTS],
        "environment": {name: str(run.environment.get(name, "unknown")) for name in ("topology", "placement")},
    }


def _fact(name: str, value: object) -> str:
    return f"{name} {value}" if name in ("torch", "hpccomm") else str(value)


def _fact_text(value: object) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{key}: {_fact_text(of)}" for key, of in value.items())
    if isinstance(value, float):
        return f"{value:.3g}"
    return value if isinstance(value, str) else json.dumps(value)


def _table(table: Measured, drawn: Sequence[Figure], prefix: str) -> dict[str, Any]:
    points = {(point.backend, point.size): point for point in table.points}
    rows = []
    for size in sorted({point.size for point in table.points}):
        found = [points.get((backend, size)) for backend in table.backends]
        cells = [
            (format_us(one.time_us) if one and one.time_us else "-", format_rate(one.busbw_gbps) if one else "-")
            for one in found
        ]
        rows.append((size, cells))
    return {
        "full_title": table.full_title,
        "backends": table.backends,
        "rows": rows,
        "figures": [one for one in drawn if one.name.startswith(prefix)],
    }


def _matrix(matrix: Matrix, drawn: Sequence[Figure], prefix: str) -> dict[str, Any]:
    slow = find(matrix)
    told = [f"{describe(one)}." for one in slow[:_MOST_SLOW]]
    told += [f"{count(len(slow) - _MOST_SLOW, 'more outlier')}."] if len(slow) > _MOST_SLOW else []
    return {
        "figures": [one for one in drawn if one.name.startswith(prefix)],
        "slow": told,
        "rounds": f"{rounds(matrix)}.",
    }


def _host(run: Run, number: int) -> dict[str, Any]:
    host = run.hosts[number]
    ranks = [(rank, run.node_of_rank[rank]) for rank, of in enumerate(run.host_of_rank) if of == number]
    return {
        "name": host.name,
        "crowded": host.is_oversubscribed,
        "text": f"{count(host.ranks, 'rank')} on {count(host.cores, 'core')}",
        "ranks": ranks,
    }
