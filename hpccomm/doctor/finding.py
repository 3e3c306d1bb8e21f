"""What a check found to be wrong: how bad it is, what was found, what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum


class Severity(IntEnum):
    """How bad a finding is; the number is the exit status of a run whose worst finding it is."""

    NOTE = 0  # good to know, and nothing to do
    WARNING = 1  # it works, but slowly, or not for long
    ERROR = 2  # it does not work


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        severity: How bad it is.
        check: The check that found it.
        what: What is wrong, in one line, with the hosts that have it.
        found: What was seen.
        remedy: What to do.
        setting: The very line to set or run; empty where there is none.
    """

    severity: Severity
    check: str
    what: str
    found: str = ""
    remedy: str = ""
    setting: str = ""


def worst(findings: Sequence[Finding]) -> Severity:
    """Give the severity of the worst finding; a note where there is none."""
    return max((finding.severity for finding in findings), default=Severity.NOTE)
