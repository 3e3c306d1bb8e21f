"""What a cluster is like, and the plan that its hosts are started from; pure.

It knows no process and no namespace.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, fields
from itertools import cycle
from typing import Any

from bench.cluster.host import HEAD

_HEAD_PLACE = 254  # in each subnet; the hosts have the places from 1
_OWN_NAME = "127.0.1.1"


@dataclass(frozen=True)
class Link:
    """One host's interface to one of the cluster's networks; `address` has a prefix length, `mac` outlives the host."""

    interface: str
    address: str
    mac: str


@dataclass(frozen=True)
class Host:
    """A host: its name, its interfaces in the order of the subnets, and a container bridge's address or nothing."""

    name: str
    links: tuple[Link, ...]
    bridge: str = ""

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses in the cluster's networks, without prefix lengths."""
        return tuple(link.address.partition("/")[0] for link in self.links)


@dataclass(kw_only=True)
class Settings:
    """A cluster's settings.

    Attributes:
        hosts: Number of hosts, ``node1`` to ``nodeN``; ``head``, from which jobs are started, comes on top.
        slots: Ranks that each host takes.
        name: Name of the cluster on this machine.
        subnets: One network each, IPv4 or IPv6, which all hosts share; they exist inside the cluster only.
        interfaces: Interface names without the network's number, by host; the last host's neighbour is the first.
        bridges: Address with prefix length of a container bridge (``docker0``), by host name.
        own_name_is_loopback: Whether each host resolves its own name to 127.0.1.1, as Debian's installer has it.
        rate: Limit of each host's links in both directions, in tc's words (``200mbit``); empty for none.
        shm: Size of each host's /dev/shm and of its $TMPDIR.
    """

    hosts: int = 4
    slots: int = 2
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    subnets: tuple[str, ...] = ("10.77.0.0/24",)
    interfaces: tuple[str, ...] = ("eth",)
    bridges: Mapping[str, str] = field(default_factory=dict)
    own_name_is_loopback: bool = False
    rate: str = ""
    shm: str = "1g"

    def __post_init__(self) -> None:
        unknown = set(self.bridges) - set(self.names)
        if not 1 <= self.hosts < _HEAD_PLACE or unknown or not self.name.replace("-", "").isalnum():
            raise ValueError(f"no cluster of {self.hosts} hosts, bridges {dict(self.bridges)}, name {self.name!r}")

    @property
    def names(self) -> tuple[str, ...]:
        """The hosts' names; `HEAD` is not among them."""
        return tuple(f"node{number}" for number in range(1, self.hosts + 1))

    @property
    def nodes(self) -> tuple[Host, ...]:
        """The hosts."""
        return tuple(
            Host(name, self._links(place, kind), self.bridges.get(name, ""))
            for place, (name, kind) in enumerate(zip(self.names, cycle(self.interfaces)), 1)
        )

    @property
    def head(self) -> Host:
        """The host from which jobs are started; it holds the networks' switches."""
        return Host(HEAD, self._links(_HEAD_PLACE, "switch"))

    def _links(self, place: int, kind: str) -> tuple[Link, ...]:
        networks = map(ipaddress.ip_network, self.subnets)
        return tuple(
            Link(f"{kind}{number}", f"{network[place]}/{network.prefixlen}", f"02:00:00:00:{number:02x}:{place:02x}")
            for number, network in enumerate(networks)
        )

    def hosts_file(self, name: str) -> str:
        """Write /etc/hosts of one host."""
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        for host in (self.head, *self.nodes):
            own = self.own_name_is_loopback and host.name == name
            lines += [f"{address} {host.name}" for address in ((_OWN_NAME,) if own else host.addresses[:1])]
        return "".join(f"{line}\n" for line in lines)

    def plan(self) -> dict[str, Any]:
        """Give what the hosts' first processes read."""
        hosts = {
            host.name: {"links": [astuple(link) for link in host.links], "bridge": host.bridge}
            for host in (self.head, *self.nodes)
        }
        return {"hosts": hosts, "shm": self.shm, "rate": self.rate}

    def settings(self) -> dict[str, Any]:
        """Give the settings by name."""
        return {one.name: getattr(self, one.name) for one in fields(Settings)}
