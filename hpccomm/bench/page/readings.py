"""From the benchmark's JSON to what a report says of all that is no table of a collective; pure.

What does not fit is an error, as in `runs`, where it is told to the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, TypeVar

from hpccomm.bench.averaging import Averaged, Overlap, Part, model_of
from hpccomm.bench.efficiency import Efficiency
from hpccomm.bench.startup import PARTS, StartUp
from hpccomm.bench.steadiness import REPEATED, Steadiness, Straggler, Stretch
from hpccomm.bench.tables import WHAT
from hpccomm.bench.traffic import Parallel, Timed

Entries = Sequence[Mapping[str, Any]]
Found = TypeVar("Found")


@dataclass(frozen=True)
class Step:
    """A step of one transformer with one backend; its operations one after the other."""

    model: str
    micro_batches: int
    ways: Parallel
    backend: str
    kinds: tuple[Timed, ...]

    @property
    def step_us(self) -> float:
        """Microseconds of a step."""
        return sum(kind.step * kind.time_us for kind in self.kinds)

    @property
    def layer_us(self) -> float:
        """Microseconds of a layer in a step."""
        return sum(kind.layer * kind.time_us for kind in self.kinds)


@dataclass(frozen=True)
class Steady:
    """One backend over many calls of so many bytes."""

    backend: str
    size_bytes: int
    found: Steadiness


@dataclass(frozen=True)
class Readings:
    """What a run measured besides tables and pairs; empty where it did not.

    Attributes:
        buckets: By model: every backend and bucket size.
        overlap: Likewise, with backward.
        workloads: Every backend.
        stability: Every backend.
        efficiency: Every table and backend.
        start_up: How long the start took.
    """

    buckets: Mapping[str, tuple[Averaged, ...]]
    overlap: Mapping[str, tuple[Overlap, ...]]
    workloads: tuple[Step, ...]
    stability: tuple[Steady, ...]
    efficiency: tuple[Efficiency, ...]
    start_up: StartUp | None

    @property
    def collectives(self) -> set[str]:
        """What the tables are called that these tell of."""
        found = {Part.AVERAGING.of(model) for model in (*self.buckets, *self.overlap)}
        found |= {Part.BOTH.of(model) for model in self.overlap}
        return found | ({REPEATED} if self.stability else set())

    @property
    def backends(self) -> list[str]:
        """All backends, each once."""
        models: list[tuple[Averaged, ...]] = [*self.buckets.values(), *self.overlap.values()]
        others = [*(one.backend for one in self.workloads), *(one.backend for one in self.stability)]
        others += [one.backend for one in self.efficiency]
        return list(dict.fromkeys([*(one.backend for found in models for one in found), *others]))


def readings_of(sections: Mapping[str, Entries], start_up: Sequence[Sequence[Any]] | None, *, ranks: int) -> Readings:
    """Read all of it.

    Args:
        sections: By their names.
        start_up: Of each rank, as the environment has it.
        ranks: Of the run.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: Something is not what the benchmark writes.
    """
    overlaps = [(model, Overlap(*one)) for model, one in _of_models(sections.get("overlap", ()), _OVERLAP)]
    buckets = [(model, Averaged(*one)) for model, one in _of_models(sections.get("buckets", ()), _AVERAGED)]
    return Readings(
        buckets=_by_model(buckets),
        overlap=_by_model(overlaps),
        workloads=tuple(map(_step, sections.get("workloads", ()))),
        stability=tuple(_steady(one, ranks) for one in sections.get("stability", ())),
        efficiency=tuple(map(_efficiency, sections.get("efficiency", ()))),
        start_up=_start_up(start_up, ranks) if start_up else None,
    )


def positive(value: Any) -> float | None:
    """Give a time or rate, or None where there is none."""
    if value is not None and not 0 < float(value) < float("inf"):
        raise ValueError(f"{value!r} where a time or rate belongs")
    return None if value is None else float(value)


def text(value: Any) -> str | None:
    """Give text, or None where there is none."""
    return None if value is None else str(value)


_AVERAGED, _OVERLAP = ([one.name for one in fields(kind)][2:] for kind in (Averaged, Overlap))


def _of_models(entries: Entries, times: Sequence[str]) -> Iterable[tuple[str, tuple[Any, ...]]]:
    for one in entries:
        model = model_of(str(one["model"]), int(one["scale"]))
        yield model, (str(one["backend"]), _count(one["bucket_bytes"]), *(_given(one[name]) for name in times))


def _by_model(found: Iterable[tuple[str, Found]]) -> dict[str, tuple[Found, ...]]:
    models: dict[str, list[Found]] = {}
    for model, one in found:
        models.setdefault(model, []).append(one)
    return {model: tuple(of_model) for model, of_model in models.items()}


def _step(one: Mapping[str, Any]) -> Step:
    ways = Parallel(*(int(one[name]) for name in ("tensor", "data", "pipeline")))
    kinds = tuple(map(_timed, one["kinds"]))
    if not kinds:
        raise ValueError("a step without operations")
    model = model_of(str(one["model"]), int(one["scale"]))
    return Step(model, int(one["micro_batches"]), ways, str(one["backend"]), kinds)


def _timed(one: Mapping[str, Any]) -> Timed:
    return Timed(
        kind=str(one["kind"]),
        collective=str(one["collective"]),
        op=text(one["op"]),
        elements=int(one["elements"]),
        layer=int(one["layer"]),
        step=_count(one["step"]),
        what=str(one["what"]),
        size_bytes=_count(one["size_bytes"]),
        time_us=_given(one["time_us"]),
    )


def _steady(one: Mapping[str, Any], ranks: int) -> Steady:
    course = tuple(
        Stretch(int(part["first"]), _given(part["median_us"]), _given(part["longest_us"])) for part in one["course"]
    )
    late_us, last = (tuple(_share(value) for value in one[name]) for name in ("late_us", "last"))
    if not course or (len(late_us), len(last)) != (ranks, ranks):
        raise ValueError(f"stability of {len(course)} stretches, {len(late_us)} and {len(last)} of {ranks} ranks")
    found = Steadiness(
        calls=_count(one["calls"]),
        seconds=_given(one["seconds"]),
        median_us=_given(one["median_us"]),
        drift=float(one["drift"]),
        spikes=int(one["spikes"]),
        longest_us=_given(one["longest_us"]),
        longest_at=int(one["longest_at"]),
        stragglers=tuple(
            Straggler(str(late["name"]), _share(late["late_us"]), _share(late["last"])) for late in one["stragglers"]
        ),
        course=course,
        late_us=late_us,
        last=last,
    )
    return Steady(str(one["backend"]), _count(one["size_bytes"]), found)


def _efficiency(one: Mapping[str, Any]) -> Efficiency:
    what: dict[str, Any] = {name: text(one[name]) for name in WHAT} | {"ranks": _count(one["ranks"])}
    rates = (_given(one[name]) for name in ("busbw_GBps", "limit_GBps"))
    return Efficiency(what, str(one["backend"]), _count(one["size_bytes"]), *rates)


def _start_up(of_ranks: Sequence[Sequence[Any]], ranks: int) -> StartUp:
    found = tuple(tuple(map(_share, parts)) for parts in of_ranks)
    if len(found) != ranks or any(len(parts) != len(PARTS) for parts in found):
        raise ValueError(f"a start of {len(found)} of {ranks} ranks")
    return StartUp(found)


def _given(value: Any) -> float:
    found = positive(value)
    if found is None:
        raise ValueError("no time or rate where one belongs")
    return found


def _share(value: Any) -> float:
    """Give what is 0 or more."""
    if not (isfinite(float(value)) and float(value) >= 0):
        raise ValueError(f"{value!r} where a number of 0 or more belongs")
    return float(value)


def _count(value: Any) -> int:
    if int(value) < 1:
        raise ValueError(f"{value!r} where a number of 1 or more belongs")
    return int(value)
