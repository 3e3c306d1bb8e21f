"""Rows as flat results, one a backend and size: the columns of the JSON and CSV files, and what is compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hpccomm.bench.metrics import algbw_gbps, busbw_gbps
from hpccomm.bench.rows import Cell, Row
from hpccomm.units import rate_gbps

Result = Mapping[str, Any]

WHAT = ("collective", "place", "dtype", "op", "ranks")
"""What the results of one table share."""

COLUMNS = (
    *WHAT,
    "backend",
    "algorithm",
    "size_bytes",
    "iterations",
    "time_us_median",
    "time_us_min",
    "time_us_p95",
    "time_us_p99",
    "time_us_max",
    "skew_us_median",
    "algbw_GBps",
    "busbw_GBps",
    "wire_bytes_per_node",
    "wire_GBps_per_node",
    "wrong",
    "error",
)


def described(what: Result) -> str:
    """Say in words what a table measured.

    >>> described({"collective": "all_reduce", "op": "sum", "dtype": "float32", "place": "out"})
    'all_reduce sum of float32, out of place'
    """
    if what["place"] is None:
        return str(what["collective"])
    words = " ".join(filter(None, (what["collective"], what["op"], "of", what["dtype"])))
    return f"{words}, {'in' if what['place'] == 'in' else 'out of'} place"


def results(row: Row, what: Mapping[str, Any], factor: float | None) -> list[dict[str, Any]]:
    """Give a row's results, each with all of `COLUMNS`; None where there is no value.

    Args:
        row: One size over all backends.
        what: Values of `WHAT`.
        factor: Busbw factor, or None where there is no bus bandwidth.
    """
    return [{**what, **_of_cell(row.size_bytes, cell, factor)} for cell in row.cells]


def _of_cell(size: int, cell: Cell, factor: float | None) -> dict[str, Any]:
    times = cell.times
    median = times.median_us if times else None
    rated = median if size else None
    return {
        "backend": cell.backend,
        "algorithm": cell.algorithm,
        "size_bytes": size,
        "iterations": times and times.iterations,
        "time_us_median": median,
        "time_us_min": times and times.min_us,
        "time_us_p95": times and times.p95_us,
        "time_us_p99": times and times.p99_us,
        "time_us_max": times and times.max_us,
        "skew_us_median": times and times.skew_us,
        "algbw_GBps": rated and algbw_gbps(size, rated),
        "busbw_GBps": rated and busbw_gbps(size, rated, factor),
        "wire_bytes_per_node": cell.wire_bytes,
        "wire_GBps_per_node": rated and cell.wire_bytes and rate_gbps(cell.wire_bytes, rated),
        "wrong": cell.wrong,
        "error": cell.error,
    }
