"""Tables as text: the jobs to choose from, and a sweep's results. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from hpccomm.bench.tables import WHAT, described
from hpccomm.jobs.catalogue import JOBS
from hpccomm.units import format_bytes, format_us


def jobs() -> list[str]:
    """Give the table of jobs."""
    rows = [("JOB", "STARTED BY", "WHAT IT DOES"), *((one.name, one.start, one.summary) for one in JOBS.values())]
    return _columns([*rows])


def sweep(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Give a table a collective: sizes, and the median times of the backends, the best of a row marked."""

    def key(one: Mapping[str, Any]) -> str:
        return repr([one[name] for name in WHAT])

    lines: list[str] = []
    for _, group in groupby(sorted(results, key=key), key=key):
        lines += ["", *_table(list(group))]
    return lines


def _table(results: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    backends = list(dict.fromkeys(str(one["backend"]) for one in results))
    letters = {backend: _letter(number) for number, backend in enumerate(backends)}
    times = {(one["size_bytes"], one["backend"]): one["time_us_median"] for one in results}
    yield f"{described(results[0])}, {results[0]['ranks']} ranks; median time_us, * marks the best of a row"
    yield from (f"{letter}  {backend}" for backend, letter in letters.items())
    rows = [("size", *letters.values())]
    for size in sorted({one["size_bytes"] for one in results}):
        row = [times.get((size, backend)) for backend in backends]
        best = min((time for time in row if time is not None), default=None)
        shown = ("-" if time is None else format_us(time) + "*" * (time == best) for time in row)
        rows.append((format_bytes(size), *shown))
    yield from _columns(rows, right=True)


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _columns(rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    align = str.rjust if right else str.ljust
    return ["  ".join(align(text, width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
