"""From what is known and what is wrong to what the user reads; pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpccomm.doctor.case import Case, Facts
from hpccomm.doctor.checks import CHECKS, Check, Line
from hpccomm.doctor.checks.interfaces import chosen
from hpccomm.doctor.finding import Finding, Severity, worst
from hpccomm.topology.grouping import count, listed
from hpccomm.units import format_us

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold"}
_MOST = 4  # values of one thing that are shown; hosts whose own things are shown


def report(case: Case, findings: Sequence[Finding]) -> RenderableType:
    """Give the whole report: what there is, what is wrong, and the verdict.

    Args:
        case: What is known.
        findings: The worst first.
    """
    parts: list[RenderableType] = [Text(headline(case), "bold"), "", _facts(case)]
    if any(_differs(values) for _, values, is_own in _merged(case) if not is_own):
        parts.append(Text("! differs between hosts", "yellow"))
    for finding in findings:
        parts += ["", *_finding(finding)]
    return Lines(*parts, "", Text(verdict(findings), _STYLES[worst(findings)]))


def headline(case: Case) -> str:
    """Say which ranks these are, and where."""
    trial = case.trial
    ranks = trial.topology or f"{count(trial.size, 'rank')}, {'joined' if trial.joined else 'not joined'}"
    started = "started alone" if trial.launcher == "none" else f"started by {trial.launcher}"
    heard = case.sights[0]
    unheard = "" if len(case.sights) == trial.size else f"; only rank {heard.rank} on {heard.host} is heard"
    return f"{ranks}, {started}{unheard}"


def verdict(findings: Sequence[Finding]) -> str:
    """Say in one line how it stands."""
    counts = {severity: sum(finding.severity is severity for finding in findings) for severity in Severity}
    notes = counts[Severity.NOTE]
    if worst(findings) is Severity.NOTE:
        return f"all well ({count(notes, 'note')})" if notes else "all well"
    words = [count(counts[one], one.name.lower()) for one in (Severity.ERROR, Severity.WARNING) if counts[one]]
    return f"not well: {' and '.join(words)}"


def in_short(case: Case, findings: Sequence[Finding], *, leads_host: bool) -> list[str]:
    """Give in a line each what a rank found that the first one does not hear of.

    Args:
        case: What this rank knows.
        findings: What it found.
        leads_host: Whether it speaks for its host too, and not only of what failed on itself.
    """
    sight = case.sights[0]
    known = {error["what"] for error in case.trial.errors if error.get("everywhere")}
    own = {error["what"] for error in case.trial.errors} - known
    return [
        f"{finding.severity.name} on {sight.host}: {finding.what}: {finding.found} -> "
        f"{finding.setting or finding.remedy}"
        for finding in findings
        if finding.severity > Severity.NOTE
        if finding.what in own or (leads_host and finding.what not in known and finding.check not in _OF_ALL)
    ]


_OF_ALL = ("trial", "slurm", "ports")  # checks of what all hosts have alike


def _merged(case: Case) -> Iterator[tuple[str, dict[str, list[str]], bool]]:
    """Give each label with its values, each with its hosts, and whether each host has its own."""
    found: dict[str, tuple[dict[str, list[str]], bool]] = {}
    addresses = chosen(case)
    for check in CHECKS:
        for host, facts in case.of_hosts(check.name):
            for line in _shown(check, {**facts, "chosen": addresses.get(host.name, "")}):
                values, _ = found.setdefault(line.label, ({}, line.is_own))
                values.setdefault(line.text, []).append(host.name)
    for line in _of_trial(case):
        found.setdefault(line.label, ({}, True))[0][line.text] = []
    for label, (values, is_own) in found.items():
        yield label, values, is_own


def _shown(check: Check, facts: Facts) -> list[Line]:
    """Give what a check shows; another version of it may have looked on another host."""
    try:
        return list(check.show(facts))
    except (KeyError, TypeError, ValueError) as error:
        return [Line(check.name, f"cannot be shown: {type(error).__name__} {error}")]


def _of_trial(case: Case) -> Iterator[Line]:
    if case.trial.backend:
        yield Line("backend", case.trial.backend)
    for backend, time_us in case.trial.times.items():
        yield Line("all_reduce 4 KiB", f"{format_us(time_us)} us over {backend}")


def _facts(case: Case) -> RenderableType:
    table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, values, is_own in _merged(case):
        differs = _differs(values) and not is_own
        style = "yellow" if differs else ""
        for at, (value, hosts) in enumerate(list(values.items())[:_MOST]):
            text = f"{value} ({listed(hosts)})" if len(values) > 1 and hosts else value
            shown = f"{label}{' !' * differs}" if at == 0 else ""
            table.add_row(Text(shown, style or "dim"), Text(text, style))
        if len(values) > _MOST:
            table.add_row("", Text(f"and {len(values) - _MOST} more", style))
    return table


def _differs(values: dict[str, list[str]]) -> bool:
    return len(values) > 1


def _finding(finding: Finding) -> Iterator[RenderableType]:
    yield Text.assemble((f"{finding.severity.name}  ", _STYLES[finding.severity]), (finding.what, "bold"))
    for label, text in (("found", finding.found), ("do", finding.remedy), ("set", finding.setting)):
        if text:
            row = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
            row.add_column(width=6)
            row.add_column(overflow="fold")
            row.add_row(Text(f"{label}:", "dim"), Text(text, "bold" if label == "set" else ""))
            yield Padding(row, (0, 0, 0, 2), expand=False)
