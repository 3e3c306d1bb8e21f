"""What is known of the job when it is judged: what each rank saw, and how far the ranks came together; pure.

All of it is plain data, as JSON has it: hosts may run different versions of everything, of hpccomm too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hpccomm.topology import Topology
from hpccomm.topology.grouping import grouped, listed, numbered

Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Sight:
    """What one rank saw.

    Attributes:
        rank: The rank, by MPI where that joins the ranks, else by the launcher's word.
        host: Its host's name.
        boot_id: Its host's boot, which tells hosts of one name apart.
        local_size: How many ranks the launcher says are on the host; 0 where it says nothing.
        facts: What each check saw; of checks that one rank of a host makes for all, only there.
        failed: Why a check saw nothing.
    """

    rank: int
    host: str
    boot_id: str
    local_size: int = 0
    facts: Mapping[str, Facts] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """How far the ranks came together, and what they measured.

    Attributes:
        size: Number of ranks, by MPI where that joins them, else by the launcher's word.
        joined: Whether the ranks reached each other.
        launcher: What started them.
        topology: Who is where, as the world says it; empty where there is no world.
        backend: The world's backend.
        addresses: Each rank's address that the others reach; empty where none was chosen.
        times: Microseconds of a small all_reduce by backend.
        errors: What failed: ``stage``, ``what``, ``found``, ``remedy``, and ``everywhere`` where all ranks know it.
        kept_off: Interfaces of this host that Open MPI was kept off, so that the doctor could ask the other hosts.
        said: What the libraries wrote to standard error.
    """

    size: int = 1
    joined: bool = False
    launcher: str = "none"
    topology: str = ""
    backend: str = ""
    addresses: Sequence[str] = ()
    times: Mapping[str, float] = field(default_factory=dict)
    errors: Sequence[Mapping[str, str]] = ()
    kept_off: Sequence[str] = ()
    said: str = ""


@dataclass(frozen=True)
class Host:
    """One host and the ranks on it that were heard."""

    name: str
    sights: Sequence[Sight]

    def facts(self, check: str) -> Facts | None:
        """Give what a check that is made once a host saw; None where it saw nothing."""
        return next((sight.facts[check] for sight in self.sights if check in sight.facts), None)

    @property
    def num_ranks(self) -> int:
        """How many ranks are on it, also where only one was heard."""
        return max(len(self.sights), *(sight.local_size for sight in self.sights))


@dataclass(frozen=True)
class Case:
    """The job: what the ranks saw that were heard, in rank order, and how far they came."""

    sights: Sequence[Sight]
    trial: Trial

    @cached_property
    def topology(self) -> Topology:
        """The ranks that were heard, by host."""
        numbers = numbered((sight.host, sight.boot_id) for sight in self.sights)
        names = tuple(self.sights[ranks[0]].host for ranks in grouped(numbers))
        return Topology(0, numbers, numbers, names)

    @cached_property
    def hosts(self) -> tuple[Host, ...]:
        """The hosts that were heard."""
        groups = grouped(self.topology.hosts)
        return tuple(Host(self.sights[ranks[0]].host, [self.sights[rank] for rank in ranks]) for ranks in groups)

    @property
    def has_several_hosts(self) -> bool:
        """Whether the job runs on several hosts, heard or not."""
        return len(self.hosts) > 1 or self.trial.size > self.hosts[0].num_ranks

    def of_hosts(self, check: str) -> list[tuple[Host, Facts]]:
        """Give each host's facts of a check that is made once a host."""
        return [(host, facts) for host in self.hosts if (facts := host.facts(check)) is not None]

    def of_ranks(self, host: Host, check: str) -> list[Facts]:
        """Give the facts of a check that every rank makes, for the ranks of a host."""
        return [sight.facts[check] for sight in host.sights if check in sight.facts]


def names(hosts: Sequence[Host]) -> str:
    """List hosts by name."""
    return listed([host.name for host in hosts])
