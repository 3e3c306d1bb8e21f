"""Compare median times with those of an earlier run, row by row; reads JSON files, knows no torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpccomm.bench.files import Result
from hpccomm.bench.measures import MEASURES
from hpccomm.bench.tables import WHAT
from hpccomm.errors import OptionError

_KEY = (*WHAT, "backend", "size_bytes")
_TIME = "time_us_median"


@dataclass(frozen=True)
class Recorded:
    """What a run wrote to its JSON file.

    Attributes:
        name: What it is called in text.
        environment: Where and how it was measured.
        results: One a backend and size.
        pairs: Matrices of pairs, as `hpccomm.bench.pairs.matrix` reads them.
        complete: Whether all was measured, as far as the budget allowed.
        sections: What the measurements of `hpccomm.bench.measures` found, by their name.
    """

    name: str
    environment: Mapping[str, Any]
    results: Sequence[Result]
    pairs: Sequence[Mapping[str, Any]] = ()
    complete: bool = True
    sections: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pair:
    """One row of both runs.

    Attributes:
        row: Its key and the values of the new run.
        old_us: Median before, None where there was none.
        new_us: Median now, None where there is none.
        tolerance: By which part of the old time the new one may be longer.
    """

    row: Result
    old_us: float | None
    new_us: float | None
    tolerance: float

    @property
    def ratio(self) -> float | None:
        """New over old."""
        return self.new_us / self.old_us if self.new_us and self.old_us else None

    @property
    def mark(self) -> str:
        """Say whether it is slower than allowed, or was measured and is no more; empty if neither."""
        if self.old_us and not self.new_us:
            return "FAILED"
        return "SLOWER" if self.ratio and self.ratio > 1 + self.tolerance else ""


@dataclass(frozen=True)
class Comparison:
    """Two runs side by side.

    Attributes:
        old: The old run.
        new: The new run.
        tolerance: By which part of its time a row may be slower.
        pairs: Rows of both, in the order of the new run.
        only_old: Rows of the old run alone.
        only_new: Rows of the new run alone.
    """

    old: Recorded
    new: Recorded
    tolerance: float
    pairs: Sequence[Pair]
    only_old: Sequence[Result]
    only_new: Sequence[Result]

    @property
    def fails(self) -> bool:
        """Whether any row is slower than allowed or measured no more, or nothing was compared."""
        return not self.pairs or any(pair.mark for pair in self.pairs)


def load(path: Path, *, option: str = "--compare") -> Recorded:
    """Read a file that ``--json`` wrote; errors name the option that names it.

    Raises:
        OptionError: It cannot be read or is none.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        results = [_checked(one) for one in content["results"]]
        pairs, complete = list(content.get("pairs", ())), bool(content.get("complete", True))
        sections = {name: list(content[name]) for name in MEASURES if name in content}
        return Recorded(str(path), dict(content["environment"]), results, pairs, complete, sections)
    except (OSError, ValueError, TypeError, KeyError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise OptionError(
            f"read results from {option} {path}",
            found=found,
            remedy="name a file that --json of this version wrote",
            everywhere=True,
        ) from error


def _checked(result: Result) -> Result:
    key = [result[name] for name in _KEY]
    if not all(isinstance(value, (str, int, type(None))) for value in key):
        raise ValueError(f"a result of {key}")
    if not isinstance(result[_TIME], (float, int, type(None))):
        raise ValueError(f"{_TIME} is {result[_TIME]!r}")
    return result


def refuse_strangers(old: Recorded, name: str, new: Iterable[Result]) -> None:
    """Refuse runs of which no table measured the same thing.

    Args:
        old: The old run.
        name: What the new run is called in text.
        new: Mappings with the values of `WHAT`, one a table or result.

    Raises:
        OptionError: Says in what they differ.
    """
    before, now = ({tuple(one[key] for key in WHAT) for one in run} for run in (old.results, new))
    if before & now:
        return
    raise OptionError(
        f"compare {name} with {old.name}",
        found=_difference(before, now),
        remedy="compare runs of the same collective, place, dtype, operator and number of ranks",
        everywhere=True,
    )


def _difference(before: set[tuple[Any, ...]], now: set[tuple[Any, ...]]) -> str:
    """Say in which values all tables of one run differ from all of the other, or else in which some do."""
    if not before or not now:
        return f"the {'new' if before else 'old'} one has no results"
    sides = [[{table[place] for table in run} - {None} for place in range(len(WHAT))] for run in (now, before)]
    found = [(name, new, old) for name, new, old in zip(WHAT, *sides, strict=True) if new != old]
    apart = [one for one in found if not one[1] & one[2]] or found
    return "; ".join(f"{name} {_listed(new)} here, {_listed(old)} there" for name, new, old in apart)


def _listed(values: Iterable[Any]) -> str:
    return " and ".join(sorted(str(value) for value in values)) or "none"


def compare(old: Recorded, new: Recorded, tolerance: float) -> Comparison:
    """Pair the rows of two runs."""
    before, now = ({tuple(one[name] for name in _KEY): one for one in run.results} for run in (old, new))
    pairs = [Pair(now[key], before[key][_TIME], now[key][_TIME], tolerance) for key in now if key in before]
    only_old = [one for key, one in before.items() if key not in now]
    only_new = [one for key, one in now.items() if key not in before]
    return Comparison(old, new, tolerance, pairs, only_old, only_new)
