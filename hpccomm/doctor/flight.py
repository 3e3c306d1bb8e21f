"""Merge the ranks' flight records and judge where the ranks of each group diverge; pure.

It compares what ranks called, never times of different ranks, as their clocks differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from hpccomm.doctor.flight_records import GroupRecord, Operation, RankRecord

_SAME_COUNT = ("all_reduce", "reduce", "broadcast", "barrier")
"""Collectives whose ranks all give the same number of elements; blocks of the others may be uneven."""


class Kind(Enum):
    """The judgements on a group."""

    BACKENDS = "ranks carry the group with different backends"
    DIFFERENT = "ranks called different things"
    ABSENT = "some ranks never came"
    FAILED = "it failed on some rank"
    MISSING = "all are in the same operation, but for ranks without a record"
    WAITING = "all called the same, and some have not ended it"
    DONE = "all called the same, and all ended"


@dataclass(frozen=True)
class Group:
    """One group as all its ranks saw it.

    Attributes:
        name: Its name.
        ranks: Its members.
        records: What the members wrote on it.
        missing: Members that wrote nothing at all.
        strangers: Members that wrote, but not on this group.
    """

    name: str
    ranks: tuple[int, ...]
    records: Mapping[int, GroupRecord]
    missing: tuple[int, ...]
    strangers: tuple[int, ...]

    @cached_property
    def collectives(self) -> dict[int, dict[int, Operation]]:
        """Each rank's recorded collectives by number."""
        return {
            rank: {one.sequence: one for one in record.operations if one.is_collective}
            for rank, record in self.records.items()
        }

    @cached_property
    def reached(self) -> dict[int, int]:
        """The number of the last collective that each rank called, 0 for none."""
        return {rank: max(self.records[rank].started, *calls, 0) for rank, calls in self.collectives.items()}

    def calls(self, sequence: int) -> dict[int, Operation]:
        """Give what each rank called as this operation, where that is still recorded."""
        return {rank: calls[sequence] for rank, calls in self.collectives.items() if sequence in calls}

    def point_to_point(self, *states: str) -> list[tuple[int, Operation]]:
        """Give the sends and receives in one of these states, with their ranks."""
        return [
            (rank, one)
            for rank, record in self.records.items()
            for one in record.operations
            if not one.is_collective and one.state in states
        ]


@dataclass(frozen=True)
class Finding:
    """The judgement on one group.

    Attributes:
        group: The group.
        kind: The judgement.
        sequence: The operation that it is about; None if about none.
        ranks: The ranks that stand out: those that never came, or failed.
        maybe_earlier: Whether the operation before is not recorded by all, so that it may have begun there.
        inside: An earlier operation that all ranks are still inside, None if there is none.
    """

    group: Group
    kind: Kind
    sequence: int | None = None
    ranks: tuple[int, ...] = ()
    maybe_earlier: bool = False
    inside: int | None = None

    @property
    def diverges(self) -> bool:
        """Whether the ranks did not all do the same."""
        return self.kind not in (Kind.WAITING, Kind.DONE)


@dataclass(frozen=True)
class Flight:
    """All ranks' records together.

    Attributes:
        records: By rank; at least one.
        missing: Ranks of the job that wrote nothing.
        groups: The groups, by the first rank that has them.
    """

    records: Mapping[int, RankRecord]
    missing: tuple[int, ...]
    groups: tuple[Group, ...]

    @property
    def spread_s(self) -> float:
        """Seconds between the first and the last rank's writing, by their hosts' clocks."""
        times = [record.written_at for record in self.records.values()]
        return max(times) - min(times)


def merge(records: Sequence[RankRecord]) -> Flight:
    """Bring the groups of all ranks together: by name, members, and turn where a rank had several such.

    Args:
        records: At least one, of ranks of one job.
    """
    by_rank = {record.rank: record for record in records}
    found: dict[tuple[str, tuple[int, ...], int], dict[int, GroupRecord]] = {}
    for rank, record in by_rank.items():
        turns: Counter[tuple[str, tuple[int, ...]]] = Counter()
        for one in record.groups:
            key = (one.name, one.ranks)
            found.setdefault((*key, turns[key]), {})[rank] = one
            turns[key] += 1
    missing = tuple(rank for rank in range(records[0].size) if rank not in by_rank)
    groups = [_group(name, ranks, members, by_rank) for (name, ranks, _), members in found.items()]
    return Flight(by_rank, missing, tuple(groups))


def _group(
    name: str, ranks: tuple[int, ...], records: Mapping[int, GroupRecord], writers: Mapping[int, RankRecord]
) -> Group:
    missing = tuple(rank for rank in ranks if rank not in writers)
    strangers = tuple(rank for rank in ranks if rank in writers and rank not in records)
    return Group(name, ranks, records, missing, strangers)


def judge(group: Group) -> Finding:
    """Find the first operation in which the ranks of a group differ, or say what they have in common."""
    if len({record.expression for record in group.records.values()}) > 1:
        return Finding(group, Kind.BACKENDS)
    inside: int | None = None
    for sequence in _candidates(group):
        finding = _differ(group, sequence, inside)
        if inside is None:  # who is inside an operation cannot come to the next
            finding = finding or _absent(group, sequence)
        finding = finding or _failed(group, sequence)
        if finding is not None:
            return finding
        if inside is None and _all_inside(group, sequence):
            inside = sequence
    return _in_common(group)


def _candidates(group: Group) -> list[int]:
    """Give the numbers at which ranks can differ, ascending: all that are recorded, and what comes after each end."""
    ends = {*group.reached.values()}
    recorded = {sequence for rank in group.records for sequence in group.collectives[rank]}
    return sorted(recorded | {end + 1 for end in ends if end < max(ends)})


def _differ(group: Group, sequence: int, inside: int | None) -> Finding | None:
    calls = group.calls(sequence)
    if len({_comparable(one) for one in calls.values()}) < 2:
        return None
    maybe_earlier = sequence > 1 and not calls.keys() <= group.calls(sequence - 1).keys()
    return Finding(group, Kind.DIFFERENT, sequence, maybe_earlier=maybe_earlier, inside=inside)


def _comparable(one: Operation) -> tuple[str, str | None, int | None]:
    """Give what must be the same on all ranks."""
    return one.collective, one.dtype, one.count if one.collective in _SAME_COUNT else None


def _absent(group: Group, sequence: int) -> Finding | None:
    ranks = tuple(rank for rank, reached in group.reached.items() if reached < sequence)
    return Finding(group, Kind.ABSENT, sequence, tuple(sorted(ranks + group.strangers))) if ranks else None


def _failed(group: Group, sequence: int) -> Finding | None:
    """Find a failure on some ranks only: what was refused alike on all ranks may have been expected."""
    calls = group.calls(sequence)
    ranks = tuple(rank for rank, one in calls.items() if one.state == "failed")
    return Finding(group, Kind.FAILED, sequence, ranks) if ranks and len(ranks) < len(calls) else None


def _all_inside(group: Group, sequence: int) -> bool:
    calls = group.calls(sequence)
    return len(calls) == len(group.records) and all(one.is_pending for one in calls.values())


def _in_common(group: Group) -> Finding:
    """Judge a group whose ranks all called the same and came equally far."""
    failed = tuple(dict.fromkeys(rank for rank, _ in group.point_to_point("failed")))
    last = max(group.reached.values())
    calls = [one for rank in group.records for one in group.collectives[rank].values()]
    pending = min((one.sequence for one in calls if one.is_pending), default=None)
    failures = tuple(rank for rank, one in group.calls(last).items() if one.state == "failed")
    stopped = last if pending is None and failures else pending
    if stopped is not None and group.missing:
        return Finding(group, Kind.MISSING, stopped, group.missing)
    if stopped is not None and group.strangers:
        return Finding(group, Kind.ABSENT, stopped, group.strangers)
    if failures:
        return Finding(group, Kind.FAILED, last, failures)
    if failed:
        return Finding(group, Kind.FAILED, None, failed)
    if pending is not None:
        return Finding(group, Kind.WAITING, pending)
    return Finding(group, Kind.DONE, last)
