"""From the benchmark's rows to a tuning table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hpccomm.errors import OptionError
from hpccomm.tuning import Choice, Times
from hpccomm.units import format_bytes

GAIN = 0.03  # by which another backend must be faster than the one below it, so that noise makes no entry


def measured(rows: Iterable[Mapping[str, Any]]) -> dict[str, Times]:
    """Give the times of each collective.

    Args:
        rows: The benchmark's results; those without a time, which were wrong or failed, do not count.

    Raises:
        OptionError: There is no row of all_reduce.
    """
    times: dict[str, Times] = {}
    for row in rows:
        if row["time_us_median"] is not None:
            of_size = times.setdefault(row["collective"], {}).setdefault(row["size_bytes"], {})
            of_size[row["backend"]] = min(row["time_us_median"], of_size.get(row["backend"], math.inf))
    if "all_reduce" not in times:
        raise OptionError(
            "make a tuning table", found="no measured row of all_reduce", remedy="measure all_reduce among the others"
        )
    return times


def choices(times: Mapping[str, Times]) -> dict[str, list[Choice]]:
    """Choose for each collective the backend from which size on."""
    return {collective: _entries(of_sizes) for collective, of_sizes in times.items()}


def _entries(times: Times) -> list[Choice]:
    """Give an entry for every size at which another backend becomes the fastest; between two sizes, their mean."""
    found: list[Choice] = []
    sizes = sorted(times)
    for before, size in zip([0, *sizes], sizes, strict=False):
        of_size = times[size]
        best = min(of_size, key=of_size.__getitem__)
        if found and of_size.get(found[-1][1], math.inf) * (1 - GAIN) <= of_size[best]:
            continue
        found.append((math.isqrt(before * size) if found else 0, best))
    return found


def lines(choices: Mapping[str, Sequence[Choice]]) -> list[str]:
    """Say what was chosen."""
    return [f"{collective}: {spans(entries)}" for collective, entries in choices.items()]


def spans(entries: Sequence[Choice]) -> str:
    """Say which backend holds from which size on."""
    return ", ".join(f"{backend} from {format_bytes(start)}" for start, backend in entries)
