"""One run of the doctor on one rank: look, try, judge."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from hpccomm.bench.screen import Progress
from hpccomm.doctor.case import Case, Sight, Trial
from hpccomm.doctor.checks import CHECKS
from hpccomm.doctor.checks.interfaces import for_trial
from hpccomm.doctor.finding import Finding, Severity, worst
from hpccomm.doctor.look import Call, Start, look, start
from hpccomm.doctor.supervise import Supervisor

_LOOK_S = 15.0


class _EndedError(Exception):
    """The launcher, Slurm or the user ends the job."""


@dataclass(frozen=True)
class Examined:
    """What came out on this rank.

    Attributes:
        case: What is known, of all ranks on the first one where they were joined.
        findings: What is wrong, the worst first.
        speaks: Whether this rank reports for all.
        is_heard: Whether the first rank knows what this one saw.
        leads_host: Whether this is the first rank of another host than the first rank's.
        supervisor: The trial, which is to be released once the report is out.
    """

    case: Case
    findings: Sequence[Finding]
    speaks: bool
    is_heard: bool
    leads_host: bool
    supervisor: Supervisor


def examine(environ: Mapping[str, str], *, timeout_s: float, progress: Progress) -> Examined:
    """Examine this rank's machine and, together with the other ranks, what joins them.

    Args:
        environ: The environment.
        timeout_s: Seconds for each thing that the ranks do together.
        progress: Where the steps are shown.
    """
    begun = start(environ)
    progress.show("looking at this host ...")
    sight = look(environ, begun, _LOOK_S)
    given, off = _given(environ)
    supervisor = Supervisor(sight, given, timeout_s=timeout_s, progress=progress, is_first=not begun.rank)
    with _taking_signals():
        try:
            supervisor.listen()
        except _EndedError as end:
            supervisor.interrupt(str(end))
    progress.clear()
    case = _case(sight, supervisor, begun, off)
    rank = supervisor.heard.rank if supervisor.heard.rank is not None else begun.rank
    leads = bool(rank) and begun.local_rank == 0
    return Examined(case, judge(case), not rank, supervisor.heard.gathered, leads, supervisor)


def _given(environ: Mapping[str, str]) -> tuple[Mapping[str, str], Sequence[str]]:
    """Give the environment of the trial, and what it keeps Open MPI off; unchanged where that cannot be told."""
    found, _ = Call(lambda: for_trial(environ)).wait(_LOOK_S)
    return found or (environ, ())


@contextmanager
def _taking_signals() -> Iterator[None]:
    """Have the first TERM or INT end the listening, so that what is known is still said; more of them change nothing.

    Slurm and mpirun send several.
    """

    def end(number: int, _: object) -> NoReturn:
        for one in before:
            signal.signal(one, signal.SIG_IGN)
        before.clear()
        raise _EndedError(f"by {signal.Signals(number).name}")

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _case(sight: Sight, supervisor: Supervisor, begun: Start, off: Sequence[str]) -> Case:
    heard = supervisor.heard
    own = replace(sight, facts={**sight.facts, **({"libraries": heard.libraries} if heard.libraries else {})})
    sights = [Sight(**{name: one[name] for name in vars(own) if name in one}) for one in heard.sights] or [own]
    trial = Trial(
        size=heard.size or begun.size,
        joined=heard.rank is not None,
        launcher=begun.launcher.name,
        topology=heard.topology,
        backend=heard.backend,
        addresses=heard.addresses if heard.sights else (),
        times=heard.times,
        errors=heard.errors,
        kept_off=off,
        said=supervisor.said,
    )
    return Case(sights, trial)


def judge(case: Case) -> list[Finding]:
    """Have all checks judge, and give the worst first; a check that cannot is a finding itself."""
    findings: list[Finding] = []
    for check in CHECKS:
        try:
            findings += check.judge(case)
        except Exception as error:
            what = f"the check of {check.name} failed"
            findings.append(Finding(Severity.WARNING, check.name, what, f"{type(error).__name__}: {error}"))
    return sorted(findings, key=lambda finding: -finding.severity)


def entries(examined: Examined) -> dict[str, Any]:
    """Give all of it as JSON takes it."""
    case, findings = examined.case, examined.findings
    status = worst(findings)
    return {
        "verdict": "all well" if status == Severity.NOTE else status.name.lower(),
        "status": int(status),
        "findings": [{**vars(finding), "severity": finding.severity.name.lower()} for finding in findings],
        "trial": {**vars(case.trial), "addresses": list(case.trial.addresses)},
        "ranks": [vars(sight) for sight in case.sights],
    }
