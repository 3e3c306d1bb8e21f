"""What a process is given at its start: a home folder and a working directory, without which libraries end it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccomm.doctor.case import Case, names
from hpccomm.doctor.checks.check import Check
from hpccomm.doctor.finding import Finding, Severity


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """See whether both are there."""
    has_folder = False
    with suppress(OSError):
        has_folder = Path.cwd().is_dir()
    return {"has_home": "HOME" in environ, "has_folder": has_folder}


def judge(case: Case) -> Iterator[Finding]:
    """Open MPI ends a process without HOME, and torch's libraries one whose working directory was removed."""
    seen = case.of_hosts("process")
    if homeless := [host for host, facts in seen if not facts["has_home"]]:
        yield Finding(
            Severity.WARNING,
            "process",
            f"HOME is not set on {names(homeless)}",
            found="Open MPI does not start without it",
            remedy="set it, or have the launcher or sbatch pass it on",
            setting="export HOME=/tmp",
        )
    if lost := [host for host, facts in seen if not facts["has_folder"]]:
        yield Finding(
            Severity.ERROR,
            "process",
            f"the working directory does not exist on {names(lost)}",
            found="libraries that look for it end the process",
            remedy="start in a folder that is there on all hosts",
            setting="cd ~",
        )


CHECK = Check("process", look, judge)
