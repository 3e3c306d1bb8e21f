"""How long each rank took until it was ready to measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections import by_rank
from hpccomm.bench.page.sections.section import Section, Values
from hpccomm.bench.page.shapes import Curves, Series
from hpccomm.bench.startup import PARTS, StartUp
from hpccomm.units import format_seconds

RULES = {
    "imports": "from the process's start to the call of hpccomm.init: the interpreter and what it imports",
    "init": "of hpccomm.init, in which a rank that comes early waits for the others",
    "groups": "of making the groups of all backends that are measured",
}


def section(run: Run, palette: Mapping[str, int], name: str) -> Section | None:
    """Give the section, if the times of the ranks are known; colours are those of the parts."""
    found = run.readings.start_up
    if found is None:
        return None
    of_parts = dict(zip(PARTS, zip(*found.of_ranks, strict=True), strict=True))
    series = tuple(Series(part, place, by_rank.points(values)) for place, (part, values) in enumerate(of_parts.items()))
    slowest = found.slowest
    return Section(
        anchor="start",
        title="Start",
        sentences=list(sentences(found, run)),
        figures=[
            Curves(f"{name}-start", "start by rank", "time (s)", "s", series, by_rank.across(run), logarithmic=False)
        ],
        values=[
            Values(
                "the slowest rank of each", ("part", "time"), [(part, format_seconds(slowest[part])) for part in PARTS]
            )
        ],
        rules=RULES,
    )


def sentences(found: StartUp, run: Run) -> Iterator[str]:
    """Say who was the last to be ready, and what took how long there; and whose imports take the longest."""
    totals = [sum(parts) for parts in found.of_ranks]
    last = max(range(len(totals)), key=totals.__getitem__)
    parts = ", ".join(f"{format_seconds(own)} {part}" for part, own in zip(PARTS, found.of_ranks[last], strict=True))
    yield f"Start: {run.rank(last)} took the longest, {format_seconds(totals[last])}: {parts}."
    imports = [parts[0] for parts in found.of_ranks]
    if len(imports) > 1:
        slow, fast = (pick(range(len(imports)), key=imports.__getitem__) for pick in (max, min))
        least, most = format_seconds(imports[fast]), format_seconds(imports[slow])
        yield f"Start: imports took {least} ({run.rank(fast)}) to {most} ({run.rank(slow)})."
