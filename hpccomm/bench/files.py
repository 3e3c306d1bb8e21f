"""The files that results are written to: their columns, and JSON and CSV that are valid after every row.

A row of the table becomes a flat result for each backend.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hpccomm.bench import nccl_tests
from hpccomm.bench.metrics import busbw_gbps
from hpccomm.bench.rows import Cell, Row
from hpccomm.bench.tables import WHAT, Table
from hpccomm.errors import OptionError
from hpccomm.units import rate_gbps
from hpccomm.whole import write_whole

Result = Mapping[str, Any]

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
    "fell_back",
)


def results(row: Row, table: Table) -> list[dict[str, Any]]:
    """Give the results of a row of a table, each with all of `COLUMNS`; None where there is no value."""
    return [{**table.what, **_of_cell(row, cell, table.factor)} for cell in row.cells]


def _of_cell(row: Row, cell: Cell, factor: float | None) -> dict[str, Any]:
    times, size = cell.times, row.moved_bytes
    median = times.median_us if times else None
    rated = median if size else None
    return {
        "backend": cell.backend,
        "algorithm": cell.algorithm,
        "size_bytes": row.size_bytes,
        "iterations": times and times.iterations,
        "time_us_median": median,
        "time_us_min": times and times.min_us,
        "time_us_p95": times and times.p95_us,
        "time_us_p99": times and times.p99_us,
        "time_us_max": times and times.max_us,
        "skew_us_median": times and times.skew_us,
        "algbw_GBps": rated and rate_gbps(size, rated),
        "busbw_GBps": rated and busbw_gbps(size, rated, factor),
        "wire_bytes_per_node": cell.wire_bytes,
        "wire_GBps_per_node": rated and cell.wire_bytes and rate_gbps(cell.wire_bytes, rated),
        "wrong": cell.wrong,
        "error": cell.error,
        "fell_back": "; ".join(cell.fell_back) or None,
    }


class Record:
    """All results, in memory and in the files that were asked for.

    Args:
        json_path: The JSON file, rewritten for every row; None writes none.
        csv_path: The CSV file, which grows by every row; None writes none.

    Attributes:
        environment: Goes before the results in the JSON file.
        results: All that were added.
        sections: What else was measured, by name, as JSON takes it.

    Raises:
        OptionError: A file cannot be written.
    """

    def __init__(
        self, environment: Mapping[str, Any], *, json_path: Path | None = None, csv_path: Path | None = None
    ) -> None:
        self.environment, self._json, self._csv = dict(environment), json_path, csv_path
        self.results: list[Result] = []
        self.sections: dict[str, list[Mapping[str, Any]]] = {}
        self._write_json(complete=False)
        if csv_path:
            self._append([dict(zip(COLUMNS, COLUMNS, strict=True))], mode="wb")

    def add(self, results: Sequence[Result]) -> None:
        """Add a row's results."""
        self.results += results
        self._write_json(complete=False)
        self._append(results)

    def add_section(self, name: str, entries: Mapping[str, Any]) -> None:
        """Add to what is no row of a table, such as a matrix of pairs."""
        self.sections.setdefault(name, []).append(entries)
        self._write_json(complete=False)

    def finish(self) -> None:
        """Note that all was measured, as far as the budget allowed."""
        self._write_json(complete=True)

    def _write_json(self, *, complete: bool) -> None:
        if self._json is None:
            return
        with _refusing("--json", self._json):
            write_whole(self._json, self.text(complete=complete))

    def text(self, *, complete: bool) -> str:
        """Give all of it as JSON."""
        rows = [{**one, **nccl_tests.entries(one)} for one in self.results]
        content = {"environment": self.environment, "complete": complete, "results": rows, **self.sections}
        content |= nccl_tests.totals(self.results)
        return json.dumps(content, indent=1, allow_nan=False) + "\n"

    def _append(self, results: Sequence[Result], *, mode: str = "ab") -> None:
        """Write lines by one call, so that none is cut where the process ends."""
        if self._csv is None:
            return
        text = io.StringIO()
        csv.DictWriter(text, COLUMNS, lineterminator="\n").writerows(results)
        with _refusing("--csv", self._csv), self._csv.open(mode, buffering=0) as file:
            file.write(text.getvalue().encode())


@contextmanager
def _refusing(option: str, path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise OptionError(
            f"write results to {option} {path}",
            found=str(error),
            remedy="name a file in a folder that rank 0 may write to",
            everywhere=True,
        ) from error
