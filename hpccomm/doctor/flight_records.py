"""The ranks' flight records as files: their shape, and what is refused. It judges nothing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any

from hpccomm.errors import OptionError
from hpccomm.topology.grouping import listed, ranges
from hpccomm.watch.flight import P2P

VERSION = 1
PENDING = ("waiting", "queued")
_STATES = ("done", "failed", *PENDING)
_FILE = re.compile(r"rank(0|[1-9][0-9]{0,8})\.json", re.ASCII)


@dataclass(frozen=True)
class Operation:
    """One operation of one rank.

    Attributes:
        sequence: Its number in the group; sends and receives are numbered apart from collectives.
        collective: Its name.
        count: Elements, None where there are none.
        dtype: Their type, None where there are none.
        posted_s: When it was called, by the rank's clock.
        ended_s: When it ended, None while it has not.
        state: done, failed, waiting or queued.
        waiting_for: Whom it waits for, if that is known, else empty.
    """

    sequence: int
    collective: str
    count: int | None
    dtype: str | None
    posted_s: float
    ended_s: float | None
    state: str
    waiting_for: str

    @property
    def is_collective(self) -> bool:
        """Whether all ranks of the group take part."""
        return self.collective not in P2P

    @property
    def is_pending(self) -> bool:
        """Whether it has not ended."""
        return self.state in PENDING

    def age_s(self, clock_s: float) -> float:
        """Give the seconds since it ended, or since it was called where it has not ended."""
        return max(0.0, clock_s - (self.posted_s if self.ended_s is None else self.ended_s))


@dataclass(frozen=True)
class GroupRecord:
    """What one rank did in one group.

    Attributes:
        name: The group's name.
        expression: What carries it.
        ranks: Its members by their ranks in the world.
        started: Number of the last collective that this rank started in it, 0 for none.
        operations: The last ones, oldest first.
    """

    name: str
    expression: str
    ranks: tuple[int, ...]
    started: int
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class RankRecord:
    """What one rank wrote.

    Attributes:
        rank: Its rank in the world.
        size: The world's size.
        job: The job's own name.
        host: Its host's name.
        pid: Its process there.
        why: What made it write.
        written_at: When it wrote, in seconds since 1970 by its host's clock.
        clock_s: The same by the clock of its operations.
        groups: Its groups.
    """

    rank: int
    size: int
    job: str
    host: str
    pid: int
    why: str
    written_at: float
    clock_s: float
    groups: tuple[GroupRecord, ...]


_NUMBER = (int, float)
_OF_RANK: Mapping[str, tuple[type, ...]] = {
    "rank": (int,),
    "size": (int,),
    "job": (str,),
    "host": (str,),
    "pid": (int,),
    "why": (str,),
    "written_at": _NUMBER,
    "clock_s": _NUMBER,
    "groups": (list,),
}
_OF_GROUP: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "expression": (str,),
    "ranks": (list,),
    "started": (int,),
    "operations": (list,),
}
_OF_OPERATION: Mapping[str, tuple[type, ...]] = {
    "sequence": (int,),
    "collective": (str,),
    "count": (int, NoneType),
    "dtype": (str, NoneType),
    "posted_s": _NUMBER,
    "ended_s": (*_NUMBER, NoneType),
    "state": (str,),
    "waiting_for": (str,),
}
_NAMES = {int: "a whole number", float: "a number", str: "a text", list: "a list", NoneType: "null"}


class _UnfitError(ValueError):
    """What does not fit in a file, and where."""


def load(folder: Path) -> list[RankRecord]:
    """Read all ranks' records, in the order of the ranks.

    Args:
        folder: Holds ``rank<N>.json``, one for each rank that could write; other files are passed over.

    Raises:
        OptionError: There is no such folder or no record in it, a record does not fit, or they are of several jobs.
    """
    records = [_read(path, rank) for rank, path in sorted(_files(folder).items())]
    jobs: dict[str, list[int]] = {}
    for one in records:
        jobs.setdefault(f"{f'job {one.job}, ' if one.job else ''}size {one.size}", []).append(one.rank)
    if len(jobs) > 1:
        parts = [f"{job} by rank {ranges(ranks)}" for job, ranks in sorted(jobs.items())]
        raise OptionError(
            f"merge the flight records in {folder}",
            found=f"ranks of different jobs: {listed(parts)}",
            remedy="keep the files of one job there, and give each job a folder of its own",
        )
    return records


def _files(folder: Path) -> dict[int, Path]:
    asked = f"read the flight records in {folder}"
    try:
        matches = [(_FILE.fullmatch(path.name), path) for path in folder.iterdir()]
    except OSError as error:
        raise OptionError(
            asked,
            found=error.strerror or type(error).__name__,
            remedy="name the folder that holds the ranks' files rank<N>.json",
        ) from None
    files = {int(match[1]): path for match, path in matches if match}
    if not files:
        raise OptionError(
            asked,
            found="no file rank<N>.json in it",
            remedy="name the folder that the job wrote to; each rank writes its file when asked to, or when it fails",
        )
    return files


def _read(path: Path, rank: int) -> RankRecord:
    """Read the record of a rank from its file."""
    try:
        return _rank_record(json.loads(path.read_text(encoding="utf-8")), rank)
    except _UnfitError as error:
        found = str(error)
    except (OSError, ValueError, RecursionError) as error:
        found = f"{type(error).__name__}: {error}"
    raise OptionError(
        f"read the flight record {path}",
        found=found,
        remedy="read it with the hpccomm that wrote it, or move it away: its rank then counts as one without record",
    )


def _rank_record(data: Any, rank: int) -> RankRecord:
    version = data.get("version") if isinstance(data, dict) else None
    if type(version) is not int or version != VERSION:
        raise _UnfitError(f"version {version!r}, known here: {VERSION}")
    taken = _take(data, _OF_RANK, "the record")
    size = taken["size"]
    if not taken["rank"] == rank < size:
        raise _UnfitError(f"the record of rank {taken['rank']} of {size} in the file of rank {rank}")
    groups = [_group_record(one, f"groups[{at}]", rank, size) for at, one in enumerate(taken["groups"])]
    return RankRecord(**{**taken, "groups": tuple(groups)})


def _group_record(data: Any, where: str, rank: int, size: int) -> GroupRecord:
    taken = _take(data, _OF_GROUP, where)
    ranks = taken["ranks"]
    whole = all(type(one) is int and 0 <= one < size for one in ranks)
    if not whole or len({*ranks}) < len(ranks) or rank not in ranks:
        raise _UnfitError(f"{where} has ranks {ranks}, not different ranks below {size} with {rank} among them")
    operations = [_operation(one, f"{where}.operations[{at}]") for at, one in enumerate(taken["operations"])]
    return GroupRecord(**{**taken, "ranks": tuple(ranks), "operations": tuple(operations)})


def _operation(data: Any, where: str) -> Operation:
    operation = Operation(**_take(data, _OF_OPERATION, where))
    if operation.state not in _STATES:
        raise _UnfitError(f"{where} has state {operation.state!r}, known here: {', '.join(_STATES)}")
    return operation


def _take(data: Any, table: Mapping[str, Sequence[type]], where: str) -> dict[str, Any]:
    """Take the fields of a table from an object; further ones are left."""
    if not isinstance(data, dict):
        raise _UnfitError(f"{where} is no object")
    for name, kinds in table.items():
        value = data.get(name)
        if name not in data:
            raise _UnfitError(f"{where} has no {name}")
        if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
            raise _UnfitError(f"{name} of {where} is {value!r}, not {' or '.join(_NAMES[kind] for kind in kinds)}")
    return {name: data[name] for name in table}
