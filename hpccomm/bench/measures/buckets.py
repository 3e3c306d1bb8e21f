"""Which bucket size averages a model's gradients the fastest, with nothing computed meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from hpccomm.bench.candidates import Candidate
from hpccomm.bench.gradients import Part, series
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Run


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Measure every bucket size; collective."""
    return series(run, built, budget_s, Part.AVERAGING)
