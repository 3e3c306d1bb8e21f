"""Sections of what a run measured besides tables and pairs, a file each; pure.

Each file has a function `section(run, palette, name)`: it gives the section of a run, whose figures' names begin with
`name`, or None where there is nothing to tell of. `SECTIONS` is their order on the page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections import buckets, efficiency, overlap, stability, startup, workloads
from hpccomm.bench.page.sections.section import Section

SECTIONS: tuple[Callable[[Run, Mapping[str, int], str], Section | None], ...] = (
    efficiency.section,
    overlap.section,
    buckets.section,
    workloads.section,
    stability.section,
    startup.section,
)


def sections(run: Run, palette: Mapping[str, int], name: str) -> list[Section]:
    """Give all sections of a run; `palette` has the colours of the backends."""
    found = (section(run, palette, name) for section in SECTIONS)
    return [one for one in found if one is not None]
