"""Suites: options by a name, in files of this folder; the first line of a file says what it is for.

What stands beside ``--suite`` on the command line takes the place of the same option of the suite.
"""

from __future__ import annotations

import shlex
from pathlib import Path

_FILES = {path.stem: path for path in sorted(Path(__file__).parent.glob("*.txt"))}

SUITES = {name: path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ") for name, path in _FILES.items()}
"""What each suite is for, by name."""


def words(name: str) -> list[str]:
    """Give the options of a suite."""
    return shlex.split(_FILES[name].read_text(encoding="utf-8"), comments=True)
