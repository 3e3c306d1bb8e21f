"""Run pytest on every rank of one MPI job and read back what each rank saw."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import Mpi, Result, run_job, tail

HANG_S = 90.0
SHOWN = ("failed\n", "(most recent call first)")

# (file, test) -> passed, skipped, failure or error
Outcomes = dict[tuple[str, str], str]


@dataclass(frozen=True)
class RankReports:
    """One job: how it ended, and per rank its outcomes (None: it wrote no report) and its log."""

    job: Result
    outcomes: list[Outcomes | None]
    logs: list[str]

    @property
    def passed_files(self) -> set[str]:
        """Names of the files of which at least one test passed on rank 0."""
        cases = (self.outcomes[0] or {}).items()
        return {Path(file).name for (file, _), outcome in cases if outcome == "passed"}

    @property
    def problems(self) -> list[str]:
        """What keeps this job from being a success."""
        first = self.outcomes[0]
        found = {
            f"exit status {self.job.returncode}": self.job.returncode != 0,
            f"deadline of the job reached after {self.job.seconds:.0f} s": self.job.timed_out,
            f"left behind: {self.job.leftovers}": bool(self.job.leftovers),
            f"ranks without a report: {self._where(None)}": None in self.outcomes,
            f"outcomes differ between ranks: {self._differences()}": bool(self._differences()),
            "no test passed": "passed" not in (first or {}).values(),
        }
        return [text for text, is_so in found.items() if is_so]

    def __str__(self) -> str:
        """The failing ranks' logs, one line for each of the others, and the launcher's output."""
        parts = []
        for rank, log in enumerate(self.logs):
            lines = 100 if any(word in log for word in SHOWN) else 1
            parts.append(f"--- rank {rank} of {len(self.logs)} ---\n{tail(log, lines)}")
        return "\n".join([*parts, "--- job ---", str(self.job)])

    def _where(self, outcome: Outcomes | None) -> list[int]:
        return [rank for rank, found in enumerate(self.outcomes) if found == outcome]

    def _differences(self) -> dict[str, list[str]]:
        ranks = [found for found in self.outcomes if found is not None]
        tests = {test: [found.get(test, "not run") for found in ranks] for found in ranks for test in found}
        return {f"{file}::{name}": seen for (file, name), seen in tests.items() if len(set(seen)) > 1}


def run_pytest(
    mpi: Mpi, np: int, paths: Sequence[Path], *, folder: Path, timeout_s: float, hang_s: float = HANG_S
) -> RankReports:
    """Run the MPI tests of `paths` in one job.

    Args:
        mpi: Which MPI.
        np: Number of ranks.
        paths: Files or folders; one with tests/mpi/conftest.py above them.
        folder: Empty; the ranks put their reports and temporary files here.
        timeout_s: Deadline of the job in seconds.
        hang_s: How long one test may take in seconds.
    """
    options = ["--only-mpi", "-q", "-p", "no:cacheprovider", "-o", "junit_family=xunit1"]
    argv = [mpi.python, "-m", "mpi4py", "-m", "pytest", *options, *map(str, paths)]
    env = {"HPCCOMM_TEST_REPORTS": str(folder), "HPCCOMM_TEST_HANG_S": str(hang_s)}
    job = run_job(mpi, np, argv, env=env, timeout_s=timeout_s)
    return RankReports(
        job,
        [_read_outcomes(folder / f"rank{rank}.xml") for rank in range(np)],
        [_read_log(folder / f"rank{rank}.log") for rank in range(np)],
    )


def _read_outcomes(file: Path) -> Outcomes | None:
    if not file.exists():
        return None
    cases = ElementTree.parse(file).iter("testcase")
    return {_name(case): _outcome(case) for case in cases}


def _name(case: ElementTree.Element) -> tuple[str, str]:
    return case.get("file", ""), f"{case.get('classname')}.{case.get('name')}"


def _outcome(case: ElementTree.Element) -> str:
    return next((child.tag for child in case if child.tag in ("failure", "error", "skipped")), "passed")


def _read_log(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else "(never started)"
