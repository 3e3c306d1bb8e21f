"""Which bucket size averages a model's gradients the fastest, with nothing computed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from hpccomm.bench.averaging import Part, averaged
from hpccomm.bench.candidates import Candidate
from hpccomm.bench.gradients import MODEL, series
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Run


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Measure every bucket size; collective."""
    rows = series(run, built, budget_s, Part.AVERAGING)
    model = {"model": run.options.model or MODEL, "scale": run.options.scale}
    for one in averaged(rows):
        run.record.add_section("buckets", {**model, **asdict(one)})
    return rows
