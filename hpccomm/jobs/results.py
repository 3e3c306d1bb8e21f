"""What proves that a job did its work: the benchmark's results, complete and from as many ranks as there are tasks."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpccomm.errors import JobError
from hpccomm.whole import write_whole

_CASE = re.compile(r"case-([0-9]+)-of-([0-9]+)\.json", re.ASCII)
_JOINED = "sweep.json"


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep's cases.

    Attributes:
        results: Of all cases that are complete, in their order.
        file: Where they stand together, as if one run had measured them.
        faults: What is missing, failed or is wrong, in words.
    """

    results: Sequence[Mapping[str, Any]]
    file: Path
    faults: Sequence[str]


def verify(path: Path, *, ranks: int) -> int:
    """See that a run's results are complete, and give their number.

    Args:
        path: The file that ``--json`` wrote.
        ranks: The number of tasks.

    Raises:
        JobError: They are not.
    """
    content = _read(path)
    measured = content["environment"].get("ranks")
    if measured != ranks:
        raise JobError(
            f"measure on {ranks} ranks",
            found=f"{path} is of {measured} ranks",
            remedy="start the ranks by what belongs to their MPI library: see MPI_PLUGIN and MPIRUN in the script",
        )
    return _count(content)


def collect(folder: Path) -> Sweep:
    """Join the cases of a sweep in one file, which ``--compare`` of the benchmark reads.

    Raises:
        JobError: The folder has no case, or those of different sweeps, or cannot be written to.
    """
    matches = [match for match in map(_CASE.fullmatch, _names(folder)) if match]
    totals = {int(match[2]) for match in matches}
    if len(totals) != 1:
        raise JobError(
            f"collect the cases of a sweep in {folder}",
            found=f"cases of sweeps of {' and '.join(map(str, sorted(totals)))} cases" if totals else "none",
            remedy="name the number of the array's job: the folder is sweep-NUMBER in RESULTS",
        )
    cases = {int(match[1]): folder / match[0] for match in matches}
    contents: list[dict[str, Any]] = []
    faults: list[str] = []
    for number in range(totals.pop()):
        try:
            contents.append(_read(cases[number]))
            if failure := _failure(contents[-1]["results"]):
                faults.append(f"case {number}: failed: {failure}")
        except KeyError:
            faults.append(f"case {number} is missing")
        except JobError as error:
            faults.append(f"case {number}: {error.found}")
    results = [one for content in contents for one in content["results"]]
    environment = contents[0]["environment"] if contents else {}
    joined = {"environment": environment, "complete": not faults, "results": results}
    try:
        write_whole(folder / _JOINED, json.dumps(joined, indent=1) + "\n")
    except OSError as error:
        raise JobError(
            f"join the cases of a sweep in {folder / _JOINED}",
            found=str(error.strerror),
            remedy="start it as a user who may write there, where there is room",
        ) from error
    return Sweep(results, folder / _JOINED, faults)


def _failure(results: Sequence[Mapping[str, Any]]) -> str:
    """Give why the first cell without a value has none; later ones say that it failed before. Empty where all have."""
    broken = (one for one in results if one.get("wrong") or one.get("error"))
    return next((one.get("error") or f"{one['wrong']} wrong elements" for one in broken), "")


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError as error:
        raise JobError(
            f"collect the cases of a sweep in {folder}",
            found=str(error),
            remedy="name the number of the array's job, and start in the folder in which the sweep was started",
        ) from error


def _count(content: Mapping[str, Any]) -> int:
    """Give how many results there are; without those of a table, as after `--pairs`, how many of other kinds."""
    return len(content["results"]) or sum(len(one) for one in content.values() if isinstance(one, list))


def _read(path: Path) -> dict[str, Any]:
    """Read complete results."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        fault = "" if content["complete"] is True else f"incomplete after {len(content['results'])} results"
        if not fault and not _count(content):
            fault = "no result"
        content["environment"]["ranks"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        fault = f"no {error}" if isinstance(error, KeyError) else str(error)
    if fault:
        raise JobError(
            f"see that the results in {path} are complete",
            found=fault,
            remedy="find the cause in the job's output; a lost node may leave no other trace",
        )
    return content
