"""What a step of a transformer sends in data, tensor and pipeline parallel training, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hpccomm.bench.page.readings import Step
from hpccomm.bench.page.runs import Run
from hpccomm.bench.page.sections.section import Section, Values
from hpccomm.bench.page.shapes import Bar, Bars
from hpccomm.bench.traffic import STEP, Timed
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes, format_seconds, format_us

RULES = {
    "step": STEP,
    "layer": "of the operations that every layer has in a step; what stages hand on is no layer's",
    "bytes": "of the buffers that a rank of the largest stage gives to its operations; an algorithm may send more",
}


def section(run: Run, palette: Mapping[str, int], name: str) -> Section | None:
    """Give the section, if a step was measured; colours are those of the kinds of operations."""
    steps = run.readings.workloads
    if not steps:
        return None
    same: dict[tuple[object, ...], list[Step]] = {}
    for step in steps:
        same.setdefault((step.model, step.micro_batches, step.ways), []).append(step)
    return Section(
        anchor="workloads",
        title="A step of parallel training",
        sentences=[text for found in same.values() for text in sentences(found)],
        figures=[
            figure
            for number, found in enumerate(same.values(), 1)
            for figure in _figures(found, f"{name}-workload{number}")
        ],
        values=[values for found in same.values() for values in _values(found)],
        rules=RULES,
    )


def sentences(steps: Sequence[Step]) -> Iterator[str]:
    """Say what the same step sends, with which backend it is the shortest, and what takes the most of it."""
    ordered = sorted(steps, key=lambda step: step.step_us)
    best = ordered[0]
    moved = format_bytes(sum(map(_bytes, best.kinds)))
    calls = count(sum(kind.step for kind in best.kinds), "operation")
    yield f"{_called(best)}: a rank has {calls} of {moved} together."
    most = max(best.kinds, key=lambda kind: kind.step * kind.time_us)
    share = most.step * most.time_us / best.step_us
    text = f"{_called(best)}: they take {_seconds(best.step_us)} with {best.backend}"
    text += ", the shortest" if len(ordered) > 1 else ""
    text += f"; {most.kind} parallelism has {share:.0%} of it"
    yield f"{text}{f', a layer takes {_seconds(best.layer_us)}' if best.layer_us else ''}."
    if len(ordered) > 1:
        others = ", ".join(
            f"{step.step_us / best.step_us:.3g} times as long with {step.backend}" for step in ordered[1:]
        )
        yield f"{_called(best)}: {others}."


def _called(step: Step) -> str:
    return f"A step of {step.model}, {step.ways}, {step.micro_batches} micro-batches"


def _seconds(time_us: float) -> str:
    return format_seconds(time_us / 1e6)


def _bytes(kind: Timed) -> int:
    return kind.step * kind.size_bytes


def _figures(steps: Sequence[Step], name: str) -> Iterator[Bars]:
    kinds, called = steps[0].kinds, f"{steps[0].model}, {steps[0].ways}"
    for per, what in (("step", "a step"), ("layer", "a layer in a step")):
        parts = [place for place, kind in enumerate(kinds) if getattr(kind, per)]
        if parts:
            yield Bars(
                name=f"{name}-{per}",
                title=f"{called}: operations of {what}",
                label=f"time of a {per} (ms, medians)",
                unit="ms",
                parts=tuple(f"{kinds[place].kind} parallel: {kinds[place].what}" for place in parts),
                rows=tuple(
                    Bar(step.backend, tuple(_spent_ms(step.kinds[place], per) for place in parts)) for step in steps
                ),
            )
    yield Bars(
        name=f"{name}-bytes",
        title=f"{called}: what a rank has to send in a step",
        label="bytes of a step (MB)",
        unit="MB",
        parts=("a rank's operations of a step",),
        rows=tuple(Bar(f"{kind.kind} parallel", (_bytes(kind) / 1e6,)) for kind in kinds),
    )


def _spent_ms(kind: Timed, per: str) -> float:
    return int(getattr(kind, per)) * kind.time_us / 1e3


def _operation(kind: Timed) -> str:
    return f"{kind.collective}{f' {kind.op}' if kind.op else ''} of {format_bytes(kind.size_bytes)}"


def _values(steps: Sequence[Step]) -> Iterator[Values]:
    head = ("parallel", "operation", "what", "a layer has", "a step has", "bytes of a step")
    rows = [
        (kind.kind, _operation(kind), kind.what, str(kind.layer), str(kind.step), format_bytes(_bytes(kind)))
        for kind in steps[0].kinds
    ]
    called = f"{steps[0].model}, {steps[0].ways}"
    yield Values(f"{called}: operations", head, rows)
    names = [f"one of {kind.kind} (us)" for kind in steps[0].kinds]
    times = [
        (
            step.backend,
            *(format_us(kind.time_us) for kind in step.kinds),
            _seconds(step.layer_us),
            _seconds(step.step_us),
        )
        for step in steps
    ]
    yield Values(f"{called}: times", ("backend", *names, "layer", "step"), times)
