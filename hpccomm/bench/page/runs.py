"""From the benchmark's JSON to what a report speaks of; pure. What does not fit is refused here, and nowhere later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hpccomm.bench.compare import Recorded
from hpccomm.bench.files import Result
from hpccomm.bench.page.readings import Readings, positive, readings_of, text
from hpccomm.bench.pairs.matrix import Matrix, from_entries
from hpccomm.bench.tables import WHAT, described
from hpccomm.errors import OptionError
from hpccomm.topology.cores import Host
from hpccomm.topology.grouping import count


@dataclass(frozen=True)
class Point:
    """A backend at one size; the fields are those of the results' columns, None where there is no value."""

    backend: str
    size: int
    time_us: float | None
    p95_us: float | None
    busbw_gbps: float | None
    wrong: int | None
    error: str | None
    fell_back: str | None


@dataclass(frozen=True)
class Measured:
    """One table of a run.

    Attributes:
        collective: Its collective.
        title: The table in words, but for the ranks.
        ranks: Number of ranks.
        points: All that was measured.
    """

    collective: str
    title: str
    ranks: int
    points: tuple[Point, ...]

    @property
    def backends(self) -> list[str]:
        """All backends, in the order of the columns."""
        return list(dict.fromkeys(point.backend for point in self.points))

    @cached_property
    def times(self) -> dict[int, dict[str, float]]:
        """Time in microseconds of each backend that has one, by size, ascending."""
        found: dict[int, dict[str, float]] = {}
        for point in sorted(self.points, key=lambda point: point.size):
            if point.time_us is not None:
                found.setdefault(point.size, {})[point.backend] = point.time_us
        return found

    @property
    def largest(self) -> tuple[int, dict[str, float]]:
        """The largest size at which a backend has a time, with `times` of it; (0, {}) where there is none."""
        return max(self.times.items(), default=(0, {}))

    @property
    def full_title(self) -> str:
        """The table in words."""
        return f"{self.title}, on {count(self.ranks, 'rank')}"


@dataclass(frozen=True)
class Run:
    """What a report knows of one run.

    Attributes:
        name: File, or what it is called.
        environment: Where and how, as the file has it.
        hosts: The hosts.
        host_of_rank: Host of each rank; empty where the file does not say.
        node_of_rank: Node of each rank, virtual ones counted; empty likewise.
        tables: Its tables.
        matrices: Its matrices of pairs.
        readings: What else was measured.
        complete: Whether it came to its end.
    """

    name: str
    environment: Mapping[str, Any]
    hosts: tuple[Host, ...]
    host_of_rank: tuple[int, ...]
    node_of_rank: tuple[int, ...]
    tables: tuple[Measured, ...]
    matrices: tuple[Matrix, ...]
    readings: Readings
    complete: bool

    @property
    def plain(self) -> tuple[Measured, ...]:
        """The tables of which no section tells more."""
        told = self.readings.collectives
        return tuple(table for table in self.tables if table.collective not in told)

    def rank(self, rank: int) -> str:
        """Name a rank, with its host where that is known."""
        return f"rank {rank}" + (f" on host {self.hosts[self.host_of_rank[rank]].name}" if self.host_of_rank else "")

    @property
    def title(self) -> str:
        """What tells it from other runs."""
        return f"{count(len(self.node_of_rank), 'rank')} on {count(len(self.hosts), 'host')}"


def read(recorded: Recorded) -> Run:
    """Read a run.

    Raises:
        OptionError: Something in it is not what the benchmark writes.
    """
    try:
        environment = recorded.environment
        hosts = tuple(Host(str(one["name"]), int(one["ranks"]), int(one["cores"])) for one in environment["hosts"])
        nodes = tuple(int(node) for node in environment["node_of_rank"])
        host_of_rank = tuple(int(host) for host in environment.get("host_of_rank", ()))
        if any(host not in range(len(hosts)) for host in host_of_rank) or len(host_of_rank) not in (0, len(nodes)):
            raise ValueError("ranks on hosts that are not listed")
        tables, matrices = _tables(recorded.results), tuple(map(from_entries, recorded.pairs))
        readings = readings_of(recorded.sections, environment.get("start_up_of_ranks"), ranks=len(nodes))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        found = f"no {error}" if isinstance(error, KeyError) else str(error)
        remedy = "give files that --json of this version wrote"
        raise OptionError(f"report {recorded.name}", found=found, remedy=remedy, everywhere=True) from error
    return Run(recorded.name, environment, hosts, host_of_rank, nodes, tables, matrices, readings, recorded.complete)


def _tables(results: Sequence[Result]) -> tuple[Measured, ...]:
    groups: dict[tuple[Any, ...], list[Result]] = {}
    for one in results:
        groups.setdefault(tuple(one[name] for name in WHAT), []).append(one)
    return tuple(_table(group) for group in groups.values())


def _table(results: Sequence[Result]) -> Measured:
    points = tuple(map(_point, results))
    return Measured(str(results[0]["collective"]), described(results[0]), int(results[0]["ranks"]), points)


def _point(one: Result) -> Point:
    return Point(
        backend=str(one["backend"]),
        size=int(one["size_bytes"]),
        time_us=positive(one["time_us_median"]),
        p95_us=positive(one.get("time_us_p95")),
        busbw_gbps=positive(one.get("busbw_GBps")),
        wrong=None if one.get("wrong") is None else int(one["wrong"]),
        error=text(one.get("error")),
        fell_back=text(one.get("fell_back")),
    )
