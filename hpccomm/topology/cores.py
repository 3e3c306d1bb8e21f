"""How many cores the ranks of each host may use, together and each; pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpccomm.topology.grouping import count
from hpccomm.topology.topology import Topology


@dataclass(frozen=True)
class Host:
    """A host, how many ranks are on it, and how many cores these may use together."""

    name: str
    ranks: int
    cores: int

    @property
    def is_oversubscribed(self) -> bool:
        """Whether there are more ranks than cores."""
        return self.ranks > self.cores


def hosts(topology: Topology, affinities: Sequence[frozenset[int]]) -> tuple[Host, ...]:
    """Count ranks and cores on every host; `affinities` are the cores that each rank may use."""
    found = []
    for number, name in enumerate(topology.hostnames):
        here = _on_host(topology, affinities, number)
        found.append(Host(name, len(here), len(frozenset[int]().union(*here))))
    return tuple(found)


def placement(topology: Topology, affinities: Sequence[frozenset[int]]) -> str:
    """Say how many cores a rank may use and whether it has them for itself."""
    counts = sorted({len(cores) for cores in affinities})
    text = count(counts[0], "core") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} cores"
    shares = [
        sum(map(len, _on_host(topology, affinities, number))) > host.cores
        for number, host in enumerate(hosts(topology, affinities))
    ]
    return f"{text} a rank, {'shared with other ranks' if any(shares) else 'not shared'}"


def _on_host(topology: Topology, affinities: Sequence[frozenset[int]], number: int) -> list[frozenset[int]]:
    return [cores for cores, host in zip(affinities, topology.hosts, strict=True) if host == number]
