"""The results as JSON: one file that is whole and valid after every row."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpccomm.bench.environment import Environment
from hpccomm.bench.metrics import algbw_gbps, busbw_gbps
from hpccomm.bench.rows import Cell, Row
from hpccomm.errors import OptionError


class Record:
    """The file, rewritten for every row.

    Args:
        path: The file; None records nothing.
        environment: Goes before the results.
        what: Entries that stand in every result first: collective, dtype, op.
        factor: Busbw factor, or None for one rank.
    """

    def __init__(
        self, path: Path | None, environment: Mapping[str, Any], *, what: Mapping[str, Any], factor: float | None
    ) -> None:
        self._path, self._what, self._factor = path, dict(what), factor
        self._content: dict[str, Any] = {"environment": dict(environment), "results": []}
        self._write()

    def add(self, row: Row) -> None:
        """Add a result for each backend of a row.

        Raises:
            OptionError: The file cannot be written.
        """
        self._content["results"] += [self._result(row.size_bytes, cell) for cell in row.cells]
        self._write()

    def _result(self, size: int, cell: Cell) -> dict[str, Any]:
        times = cell.times
        median = times.median_us if times else None
        result = {
            **self._what,
            "backend": cell.backend,
            "size_bytes": size,
            "iterations": times and times.iterations,
            "time_us_median": median,
            "time_us_min": times and times.min_us,
            "time_us_p95": times and times.p95_us,
            "time_us_max": times and times.max_us,
            "algbw_GBps": median and algbw_gbps(size, median),
            "busbw_GBps": median and busbw_gbps(size, median, self._factor),
            "wrong": cell.wrong,
        }
        return result if cell.error is None else {**result, "error": cell.error}

    def _write(self) -> None:
        if self._path is None:
            return
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        try:
            beside.write_text(json.dumps(self._content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            beside.replace(self._path)
        except (OSError, ValueError) as error:
            raise OptionError(
                f"write results to --json {self._path}",
                found=str(error),
                remedy="name a file in a folder that rank 0 may write to",
                everywhere=True,
            ) from error


def entries(environment: Environment, definitions: Mapping[str, str]) -> dict[str, Any]:
    """Give an environment as JSON takes it."""
    return {
        **asdict(environment),
        "oversubscribed": environment.oversubscribed is not None,
        "definitions": dict(definitions),
    }
