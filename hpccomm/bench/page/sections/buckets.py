"""Which bucket size averages a model's gradients the fastest, with nothing computed meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from hpccomm.bench.averaging import Averaged
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections.by_bucket import of_backends, rows, series
from hpccomm.bench.page.sections.section import Section, Values
from hpccomm.bench.page.shapes import BUCKET, Curves
from hpccomm.bench.page.summary import ALIKE
from hpccomm.units import format_bytes, format_us

RULES = {
    "bucket": "takes gradients until it holds so many bytes, then is averaged; nothing is computed meanwhile",
    "as good": f"all sizes next to the best one whose time is within {(ALIKE - 1) * 100:.0f} % of its own",
}


def section(run: Run, palette: Mapping[str, int], name: str) -> Section | None:
    """Give the section, if bucket sizes were measured."""
    models = run.readings.buckets
    if not models:
        return None
    return Section(
        anchor="buckets",
        title="Buckets of gradients",
        sentences=[text for model, found in models.items() for text in sentences(model, found)],
        figures=[
            Curves(
                name=f"{name}-buckets{number}-time",
                title=f"averaging the gradients of {model}: time",
                label="time (us, median)",
                unit="us",
                series=series(found, palette, lambda one: one.averaging_us),
                across=BUCKET,
            )
            for number, (model, found) in enumerate(models.items(), 1)
        ],
        values=[_values(model, found) for model, found in models.items()],
        rules=RULES,
    )


def sentences(model: str, found: Sequence[Averaged]) -> Iterator[str]:
    """Say which bucket sizes to use with each backend, the fastest first."""
    backends = [(min(of, key=lambda one: one.averaging_us), of) for of in of_backends(found).values()]
    for best, of_backend in sorted(backends, key=lambda pair: pair[0].averaging_us):
        good = _as_good(of_backend, best)
        text = f"Gradients of {model} over {best.backend}: averaged in {format_us(best.averaging_us)} us"
        text += f" in buckets of {format_bytes(best.bucket_bytes)}, the best"
        if len(good) > 1:
            text += f"; as good are sizes from {format_bytes(good[0])} to {format_bytes(good[-1])}"
        yield f"{text}."


def _as_good(found: Sequence[Averaged], best: Averaged) -> list[int]:
    """Give the run of bucket sizes around the best one that are as good."""
    runs = groupby(found, key=lambda one: one.averaging_us <= ALIKE * best.averaging_us)
    sizes = [[one.bucket_bytes for one in run] for is_good, run in runs if is_good]
    return next(run for run in sizes if best.bucket_bytes in run)


def _values(model: str, found: Sequence[Averaged]) -> Values:
    least = {backend: min(one.averaging_us for one in of) for backend, of in of_backends(found).items()}

    def cells(one: Averaged) -> list[str]:
        return [format_us(one.averaging_us), f"{one.averaging_us / least[one.backend]:.2f}"]

    return Values(f"gradients of {model}", ("bucket", "backend", "time (us)", "times its best"), rows(found, cells))
