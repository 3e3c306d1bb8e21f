"""From the judgements on flight records to what the user reads; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Group as Lines
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hpccomm.doctor.flight import Finding, Flight, Group, Kind
from hpccomm.doctor.flight_records import PENDING, Operation, RankRecord
from hpccomm.topology.grouping import count, listed, ranges
from hpccomm.units import format_seconds

_HEADS = ("rank", "operation", "called", "state", "since", "meanwhile in")
_MOST = 8  # remarks of one sort


@dataclass(frozen=True)
class Row:
    """What one rank did about an operation; ranks whose rows differ in the time alone share a line.

    Attributes:
        operation: The number of the rank's call.
        called: The call in words.
        state: How it stands.
        meanwhile: What the rank waits in elsewhere.
        age_s: Seconds since it ended, or since it was called where it has not ended; None if unknown.
    """

    operation: str
    called: str
    state: str
    meanwhile: str = ""
    age_s: float | None = None


def report(flight: Flight, findings: Sequence[Finding]) -> RenderableType:
    """Give the whole report.

    Args:
        flight: All records.
        findings: One for each group, in the order in which they are to be shown.
    """
    parts: list[RenderableType] = [*_records(flight)]
    for finding in findings:
        parts += ["", Text(_heading(finding), "bold red" if finding.diverges else "bold")]
        table = _table(finding, flight)
        parts += [_indented(table)] if table else []
        parts += [_indented(Text(remark)) for remark in _remarks(finding, flight)]
    return Lines(*parts, "", Text(verdict(flight, findings), "bold"))


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def verdict(flight: Flight, findings: Sequence[Finding]) -> str:
    """Say in one line how many groups diverge."""
    names = [finding.group.name for finding in findings if finding.diverges]
    among = " among the ranks that left a record" if flight.missing else ""
    if not names:
        return f"nothing diverges in {count(len(findings), 'group')}{among}"
    return f"ranks diverge in {len(names)} of {count(len(findings), 'group')}: {listed(names)}"


def _records(flight: Flight) -> Iterator[Text]:
    size = len(flight.records) + len(flight.missing)
    whys = listed(sorted({record.why for record in flight.records.values()}))
    within = f", written within {format_seconds(flight.spread_s)} by their hosts' clocks" if size > 1 else ""
    yield Text(f"flight records of {len(flight.records)} of {count(size, 'rank')} ({whys}){within}")
    if flight.missing:
        yield Text(f"NO RECORD of {_ranks(flight.missing)}: killed, or could not write", "bold red")


def _heading(finding: Finding) -> str:
    group = finding.group
    expressions = listed([*dict.fromkeys(record.expression for record in group.records.values())], " and ")
    return f"group {group.name}, {_ranks(group.ranks)}, {expressions}: {_judgement(finding)}"


def _judgement(finding: Finding) -> str:
    place, ranks = f"operation {finding.sequence}", _ranks(finding.ranks)
    if finding.kind is Kind.BACKENDS:
        return "DIVERGES: ranks carry it with different backends"
    if finding.kind is Kind.DIFFERENT:
        return f"DIVERGES in {place}: ranks called different things"
    if finding.kind is Kind.ABSENT:
        return f"DIVERGES in {place}: {ranks} never came"
    if finding.kind is Kind.FAILED:
        return f"DIVERGES in {place if finding.sequence is not None else 'a send or recv'}: failed on {ranks}"
    if finding.kind is Kind.MISSING:
        return f"DIVERGES in {place}: nothing is known of {ranks}, all others came"
    if finding.kind is Kind.WAITING:
        return _waiting(finding)
    return f"nothing diverges: all ended, up to {place}" if finding.sequence else "nothing diverges: nothing was called"


def _waiting(finding: Finding) -> str:
    calls = finding.group.calls(finding.sequence or 0)
    inside = [rank for rank, one in calls.items() if one.is_pending]
    who = "all ranks are" if len(inside) == len(finding.group.ranks) else f"all ranks came, {_ranks(inside)} still"
    return (
        f"nothing diverges: {who} inside operation {finding.sequence}; if that lasts, the network or a library holds it"
    )


def _table(finding: Finding, flight: Flight) -> Table | None:
    """Give the ranks and what each did; None where there is nothing to compare."""
    if finding.kind is Kind.DONE or (finding.sequence is None and finding.kind is not Kind.BACKENDS):
        return None
    alike: dict[Row, list[tuple[int, float | None]]] = {}
    for rank in sorted(finding.group.ranks):
        row = _row(finding, rank, flight)
        alike.setdefault(_timeless(row), []).append((rank, row.age_s))
    lines = [
        (ranges([rank for rank, _ in ages]), row.operation, row.called, row.state, _ages(ages), row.meanwhile)
        for row, ages in alike.items()
    ]
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="underline")
    for at, head in enumerate(_HEADS):
        if any(line[at] for line in lines):
            table.add_column(head, overflow="fold", no_wrap=at < 2)
    for line in lines:
        table.add_row(*(Text(cell) for at, cell in enumerate(line) if any(other[at] for other in lines)))
    return table


def _timeless(row: Row) -> Row:
    return Row(row.operation, row.called, row.state, row.meanwhile)


def _ages(ages: Iterable[tuple[int, float | None]]) -> str:
    known = [age for _, age in ages if age is not None]
    if not known:
        return ""
    shortest, longest = format_seconds(min(known)), format_seconds(max(known))
    return shortest if shortest == longest else f"{shortest} to {longest}"


def _row(finding: Finding, rank: int, flight: Flight) -> Row:
    group, sequence = finding.group, finding.sequence
    if rank in group.missing:
        return Row("", "", "left no record")
    if rank in group.strangers:
        state = "has no such group: not made yet, or closed"
        return Row("", "", state, _meanwhile(flight.records[rank], group))
    if sequence is None:
        return Row("", "", group.records[rank].expression)
    operation = group.collectives[rank].get(sequence)
    reached = group.reached[rank]
    if operation is None and reached >= sequence:
        return Row(str(sequence), "", f"not in its record; it reached {reached}")
    if operation is not None:
        return _row_of(operation, _state(operation), flight.records[rank], group)
    last = group.collectives[rank].get(reached)
    if last is not None:
        return _row_of(last, f"{_state(last)}; came no further", flight.records[rank], group)
    return Row(str(reached or "none"), "", "came no further", _meanwhile(flight.records[rank], group))


def _row_of(operation: Operation, state: str, record: RankRecord, group: Group) -> Row:
    meanwhile = "" if operation.is_pending else _meanwhile(record, group)
    return Row(str(operation.sequence), _called(operation), state, meanwhile, operation.age_s(record.clock_s))


def _called(operation: Operation) -> str:
    data = f"{'' if operation.count is None else operation.count} {operation.dtype or ''}".strip()
    return f"{operation.collective} of {data}" if operation.dtype else operation.collective


def _state(operation: Operation) -> str:
    return f"{operation.state} for {operation.waiting_for}" if _names_whom(operation) else operation.state


def _names_whom(operation: Operation) -> bool:
    return operation.is_pending and bool(operation.waiting_for)


def _meanwhile(record: RankRecord, group: Group) -> str:
    """Say what a rank waits in other than this group's collectives."""
    waits = [
        f"{one.collective} {one.sequence} of group {there.name}{f' for {one.waiting_for}' * bool(one.waiting_for)}"
        for there in record.groups
        for one in there.operations
        if one.is_pending and not (one.is_collective and (there.name, there.ranks) == (group.name, group.ranks))
    ]
    return listed(waits, limit=4)


def _remarks(finding: Finding, flight: Flight) -> Iterator[str]:
    group = finding.group
    if finding.inside is not None:
        yield f"all ranks that left a record are still inside operation {finding.inside}, before it"
    if finding.maybe_earlier:
        yield "the operation before is not in all records: the ranks may have diverged earlier"
    if group.missing and finding.kind is not Kind.MISSING and finding.kind is not Kind.DONE:
        yield f"{_ranks(group.missing)} left no record, and may be the cause"
    if group.strangers and finding.kind is Kind.DONE:
        yield f"{_ranks(group.strangers)}: has no such group: not made yet, or closed"
    if finding.kind is Kind.ABSENT and _longest_wait_s(finding, flight) < flight.spread_s:
        yield "the waits are shorter than the time between the records: the ranks may just have moved on meanwhile"
    if finding.kind in (Kind.ABSENT, Kind.FAILED):
        known = [flight.records[rank] for rank in finding.ranks if rank in flight.records]
        yield from _most([f"rank {one.rank} is process {one.pid} on {one.host}" for one in known])
    yield from _most([_pair(rank, one, flight) for rank, one in group.point_to_point("failed", *PENDING)])


def _longest_wait_s(finding: Finding, flight: Flight) -> float:
    """Give the time since the oldest call that did not succeed."""
    waits = [
        flight.records[rank].clock_s - one.posted_s
        for rank, calls in finding.group.collectives.items()
        for one in calls.values()
        if one.state != "done"
    ]
    return max(waits, default=0.0)


def _pair(rank: int, operation: Operation, flight: Flight) -> str:
    since = format_seconds(operation.age_s(flight.records[rank].clock_s))
    return f"rank {rank}: {operation.collective} {operation.sequence} {_state(operation)}, since {since}"


def _most(remarks: Sequence[str]) -> Iterator[str]:
    yield from remarks[:_MOST]
    if len(remarks) > _MOST:
        yield f"and {len(remarks) - _MOST} more"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {ranges(sorted(ranks))}"
