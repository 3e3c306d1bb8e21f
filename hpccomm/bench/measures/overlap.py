"""How much of the averaging of gradients is hidden under backward, by backend and bucket size."""

from __future__ import annotations

from collections.abc import Sequence

from hpccomm.bench.averaging import HIDDEN, Overlap, Part, hidden
from hpccomm.bench.budget import FEWEST
from hpccomm.bench.candidates import Candidate
from hpccomm.bench.gradients import BATCH, MODEL, case_of, series
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Run
from hpccomm.bench.text import field, note, strong
from hpccomm.units import format_bytes, format_us


def measure(run: Run, built: Sequence[Candidate], budget_s: float) -> Sequence[Row]:
    """Measure averaging alone, backward alone, then both at once; collective."""
    alone = series(run, built, budget_s / 2, Part.AVERAGING)
    left = [candidate for candidate in built if candidate.dropped is None][:1]
    if not left:
        return alone
    repetitions = run.options.iterations or FEWEST
    case = case_of(run, Part.BACKWARD, run.options.buckets[0])
    backward = run.meter.measure(case, left, lambda _: repetitions, show=run.screen.progress.step)[left[0].expression]
    both = series(run, built, budget_s / 2, Part.BOTH)
    rows = [*alone, *both, Row(0, (backward,))]
    if backward.times is not None:
        found = list(hidden(alone, both, backward.times.median_us))
        run.screen.say(lines(found, backward.times.median_us, ranks=run.world.topology.world_size))
        for one in found:
            run.record.add_section("overlap", {
                "model": run.options.model or MODEL,
                "scale": run.options.scale,
                "batch": run.options.batch or BATCH,
                **one.entries(),
            })  # fmt: skip
    return rows


def lines(found: Sequence[Overlap], backward_us: float, *, ranks: int) -> list[str]:
    """Show how much is hidden, and the best of each backend."""
    shown = ["", strong("overlap"), *field("hidden", HIDDEN), *field("backward", f"{format_us(backward_us)} us alone")]
    shown.append(f"{'bucket':>8} {'avg_us':>8} {'both_us':>8} {'hidden':>7}  backend")
    best = {one.backend: one for one in sorted(found, key=lambda one: -one.both_us)}
    for one in found:
        figures = f"{format_bytes(one.bucket_bytes):>8} {format_us(one.averaging_us):>8} {format_us(one.both_us):>8}"
        line = f"{figures} {one.hidden_percent:>5.0f} %  {one.backend}"
        shown.append(strong(f"{line} *") if best[one.backend] is one else line)
    return [*shown, *note("* the bucket size with the shortest step of that backend")]
