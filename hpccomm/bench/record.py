"""The files that results are written to, row by row: JSON, valid after every row, and CSV."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpccomm.bench.environment import Environment
from hpccomm.bench.results import COLUMNS, Result
from hpccomm.errors import OptionError


class Record:
    """All results, in memory and in the files that were asked for.

    Args:
        environment: Goes before the results in the JSON file.
        json_path: The JSON file, rewritten for every row; None writes none.
        csv_path: The CSV file, which grows by every row; None writes none.

    Attributes:
        results: All that were added.

    Raises:
        OptionError: A file cannot be written.
    """

    def __init__(self, environment: Mapping[str, Any], *, json_path: Path | None, csv_path: Path | None) -> None:
        self._environment, self._json, self._csv = dict(environment), json_path, csv_path
        self.results: list[Result] = []
        self._write_json(complete=False)
        if csv_path:
            self._append([dict(zip(COLUMNS, COLUMNS, strict=True))], mode="wb")

    def add(self, results: Sequence[Result]) -> None:
        """Add a row's results."""
        self.results += results
        self._write_json(complete=False)
        self._append(results)

    def finish(self) -> None:
        """Note that all was measured, as far as the budget allowed."""
        self._write_json(complete=True)

    def _write_json(self, *, complete: bool) -> None:
        if self._json is None:
            return
        content = {"environment": self._environment, "complete": complete, "results": self.results}
        beside = self._json.with_name(f".{self._json.name}.{os.getpid()}")
        with _refusing("--json", self._json):
            beside.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
            beside.replace(self._json)

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


def entries(environment: Environment, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Give an environment as JSON takes it."""
    return {
        **asdict(environment),
        "oversubscribed": environment.oversubscribed is not None,
        "definitions": dict(definitions),
    }
