"""The trial: whether the ranks come together, whether a world stands, and whether each backend adds right."""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.doctor.case import Case
from hpccomm.doctor.checks.check import Check
from hpccomm.doctor.finding import Finding, Severity

_PORT_IS_TAKEN = "listen on "


def judge(case: Case) -> Iterator[Finding]:
    """Give what failed; a port that is taken has a finding of its own, which says who has it."""
    ports = case.sights[0].facts.get("ports", {})
    is_told = any(facts["holders"] for facts in ports.values())
    for error in case.trial.errors:
        if not (is_told and error["what"].startswith(_PORT_IS_TAKEN)):
            yield Finding(Severity.ERROR, error["stage"], error["what"], error["found"], error["remedy"])
    for sight in case.sights:
        for check, why in sight.failed.items():
            what = f"the check of {check} gave no answer on {sight.host}"
            yield Finding(Severity.WARNING, check, what, why, "see what holds it up; the rest was checked")
    if case.trial.said and not case.trial.errors:
        yield Finding(Severity.NOTE, "trial", "libraries wrote to standard error", case.trial.said)


CHECK = Check("trial", dict, judge, scope="trial")
