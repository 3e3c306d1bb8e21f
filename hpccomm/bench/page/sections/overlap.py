"""How much of averaging a model's gradients is hidden under backward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpccomm.bench.averaging import HIDDEN, Overlap
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections.by_bucket import of_backends, rows, series
from hpccomm.bench.page.sections.section import Section, Values
from hpccomm.bench.page.shapes import BUCKET, Curves, Series
from hpccomm.units import format_bytes, format_us

RULES = {
    "hidden": HIDDEN,
    "best": "of a backend, the bucket size with the shortest step, which is backward and averaging at once",
}


def section(run: Run, palette: Mapping[str, int], name: str) -> Section | None:
    """Give the section, if overlap was measured."""
    models = run.readings.overlap
    if not models:
        return None
    return Section(
        anchor="overlap",
        title="Averaging hidden under backward",
        sentences=[text for model, found in models.items() for text in sentences(model, found)],
        figures=[
            figure
            for number, (model, found) in enumerate(models.items(), 1)
            for figure in _figures(model, found, palette, f"{name}-overlap{number}")
        ],
        values=[_values(model, found) for model, found in models.items()],
        rules=RULES,
    )


def best(found: Sequence[Overlap]) -> dict[str, Overlap]:
    """Give each backend's best bucket size, the backend of the shortest step first."""
    bests = {backend: min(of, key=lambda one: one.both_us) for backend, of in of_backends(found).items()}
    return dict(sorted(bests.items(), key=lambda item: item[1].both_us))


def sentences(model: str, found: Sequence[Overlap]) -> Iterator[str]:
    """Say how much is hidden with each backend, and which step is the shortest."""
    bests = best(found)
    for backend, one in bests.items():
        where = f"with {backend} in buckets of {format_bytes(one.bucket_bytes)}"
        if one.hidden_percent <= 0:
            yield f"Gradients of {model}: none of their averaging is hidden under backward {where}, its best."
            continue
        most = max(of_backends(found)[backend], key=lambda one: one.hidden_percent)
        more = f"; most, {most.hidden_percent:.0f} %, in buckets of {format_bytes(most.bucket_bytes)}"
        text = f"Gradients of {model}: their averaging is hidden under backward to {one.hidden_percent:.0f} % {where}"
        yield f"{text}, its best{more if most is not one else ''}."
    if len(bests) > 1:
        backend, one = next(iter(bests.items()))
        where = f"{backend} in buckets of {format_bytes(one.bucket_bytes)}"
        yield f"Gradients of {model}: the shortest step is {format_us(one.both_us)} us, with {where}."


def _figures(model: str, found: Sequence[Overlap], palette: Mapping[str, int], name: str) -> Iterator[Curves]:
    yield Curves(
        name=f"{name}-hidden",
        title=f"gradients of {model}: averaging that is hidden under backward",
        label="hidden (% of averaging)",
        unit="%",
        series=series(found, palette, lambda one: one.hidden_percent),
        across=BUCKET,
        logarithmic=False,
    )
    backward = tuple((size, found[0].backward_us) for size in sorted({one.bucket_bytes for one in found}))
    yield Curves(
        name=f"{name}-step",
        title=f"backward of {model} with its gradients averaged meanwhile",
        label="time (us, median)",
        unit="us",
        series=(
            *series(found, palette, lambda one: one.both_us),
            Series("backward alone", max(palette.values()) + 1, backward),
        ),
        across=BUCKET,
        logarithmic=False,
    )


def _values(model: str, found: Sequence[Overlap]) -> Values:
    bests = best(found)

    def cells(one: Overlap) -> list[str]:
        times = [format_us(time) for time in (one.averaging_us, one.backward_us, one.both_us)]
        return [*times, f"{one.hidden_percent:.0f} %" + " (best)" * (bests[one.backend] is one)]

    head = ("bucket", "backend", "averaging (us)", "backward (us)", "both (us)", "hidden")
    return Values(f"gradients of {model}", head, rows(found, cells))
