"""Session folders of Open MPI's mpirun that were killed: one that gets the same process number cannot start."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccomm.doctor.case import Case, names
from hpccomm.doctor.checks.check import Check
from hpccomm.doctor.finding import Finding, Severity

_FOLDER = re.compile(r"(?:ompi|prte)\.(?P<pid>\d+)")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Find those whose mpirun runs no more, as far as this process table tells."""
    folder = Path(tempfile.gettempdir())
    left = sorted(entry.name for entry in folder.iterdir() if _is_left(entry))
    return {"folder": str(folder), "left": len(left), "example": left[0] if left else ""}


def _is_left(entry: Path) -> bool:
    found = _FOLDER.fullmatch(entry.name)
    with suppress(OSError):
        return found is not None and entry.is_dir() and not Path("/proc", found["pid"]).exists()
    return False


def judge(case: Case) -> Iterator[Finding]:
    """Process numbers come round again, on a busy host within the hour."""
    left = [(host, facts) for host, facts in case.of_hosts("sessions") if facts["left"]]
    if left:
        folder, example = left[0][1]["folder"], left[0][1]["example"]
        yield Finding(
            Severity.NOTE,
            "sessions",
            f"{sum(facts['left'] for _, facts in left)} folders of killed mpiruns in {folder} of "
            f"{names([host for host, _ in left])}",
            found=f"e.g. {example}; an mpirun that gets this process number ends with 'The PMIx server's listener "
            "thread failed to start'",
            remedy="remove them",
            setting=f"rm -r {folder}/{example}",
        )


CHECK = Check("sessions", look, judge)
