"""Interfaces, subnets, and which address of a host every other host can reach.

Nothing is looked up by name: what a hostname resolves to (often 127.0.1.1) says nothing of the network. The
hosts compare their interfaces instead. `select` is pure and sees all hosts; `choose` gathers for it.

This module must not know MPI, torch or launchers; an `Exchange` is all that it needs of the other ranks.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from hpccomm.errors import NetworkError, OptionError
from hpccomm.exchange import Exchange, together

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
T = TypeVar("T")
_BACKLOG = 4096  # many ranks connect at once; the kernel caps it at net.core.somaxconn
_REMEDIES = {
    errno.EADDRINUSE: "give another port, or leave it out and the kernel picks a free one",
    errno.EACCES: "give a port above 1023, or leave it out and the kernel picks a free one",
}


@dataclass(frozen=True)
class Interface:
    """One address of a host's interface; an interface with two addresses is two of these.

    Attributes:
        name: The kernel's name, e.g. ``eth0``.
        address: IPv4 or IPv6 address without a scope suffix.
        prefix: Length of the subnet's prefix in bits.
        is_up: Whether the interface is up and has a carrier.
        is_loopback: Whether the address reaches this host only (127.0.0.0/8, ::1).
        speed: Mbit/s, 0 where unknown.
    """

    name: str
    address: str
    prefix: int
    is_up: bool
    is_loopback: bool
    speed: int

    @cached_property
    def ip(self) -> Address:
        """The address, for comparing; its `version` is the family."""
        return ipaddress.ip_address(self.address)

    @cached_property
    def subnet(self) -> Network:
        """The subnet that the address lies in."""
        return ipaddress.ip_network(f"{self.address}/{self.prefix}", strict=False)


Candidates = Sequence[Sequence[Interface]]  # of every host
Marked = Sequence[Sequence[tuple[Interface, str]]]  # of every host, with what speaks against it
Routes = Callable[[Candidates], Sequence[Sequence[str]]]  # own addresses of every host, as its routing table has it


def interfaces() -> tuple[Interface, ...]:
    """List the addresses of this host's interfaces, IPv4 and IPv6, loopback and down ones included."""
    import psutil

    states = psutil.net_if_stats()
    found = []
    for name, addresses in psutil.net_if_addrs().items():
        state = states.get(name.partition(":")[0])  # eth0:1 is a second name of eth0
        is_up, speed = (state.isup, max(state.speed, 0)) if state else (False, 0)
        for item in addresses:
            if item.family in (socket.AF_INET, socket.AF_INET6):
                ip = ipaddress.ip_address(item.address.partition("%")[0])
                prefix = int(ipaddress.ip_address(item.netmask)).bit_count() if item.netmask else ip.max_prefixlen
                found.append(Interface(name, str(ip), prefix, is_up, ip.is_loopback, speed))
    return tuple(found)


def source_address(target: str) -> str | None:
    """Ask the routing table which own address it uses towards `target`; None without a route. Sends nothing."""
    try:
        with socket.socket(_family(target), socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return None


def choose(
    exchange: Exchange,
    hosts: Sequence[int],
    wanted: str | None,
    *,
    read: Callable[[], tuple[Interface, ...]] = interfaces,
    route: Callable[[str], str | None] = source_address,
) -> Interface:
    """Choose the address that this rank binds and advertises; collective, and one choice for all ranks of a host.

    Args:
        exchange: Reaches all ranks.
        hosts: Host of each rank; equal numbers are one host.
        wanted: HPCCOMM_INTERFACE, see `select`; the same on all ranks.
        read: Lists this host's interfaces.
        route: Gives the own address used towards another one, or None.

    Raises:
        OptionError: `wanted` differs among ranks or does not parse.
        NetworkError: See `select`. Both are the same on all ranks.
    """
    first: dict[int, int] = {}
    for rank, host in enumerate(hosts):
        first.setdefault(host, rank)
    leaders, mine = list(first.values()), list(first).index(hosts[exchange.rank])
    leads = exchange.rank == leaders[mine]
    seen = _gather(exchange, lambda: (wanted or None, socket.gethostname(), read() if leads else ()))
    _refuse_difference([wish for wish, _, _ in seen])

    def routes(left: Candidates) -> list[tuple[str, ...]]:
        sources = _gather(exchange, lambda: _sources(left, mine, route) if leads else ())
        return [sources[rank] for rank in leaders]

    names, candidates = [seen[rank][1] for rank in leaders], [seen[rank][2] for rank in leaders]
    return select(candidates, wanted, routes=routes, names=names)[mine]


def select(
    candidates: Candidates, wanted: str | None, *, routes: Routes | None = None, names: Sequence[str] = ()
) -> tuple[Interface, ...]:
    """Select one address a host such that every host reaches every other.

    One host takes loopback. Several take the subnet that all share: the fastest by its slowest host, IPv4 before
    IPv6, then the lowest; the lowest address in it. Never taken: down, link-local and (with several hosts)
    loopback addresses, and addresses that occur on two hosts, as bridges of containers and virtual machines do.
    Without a common subnet the routing tables decide.

    Args:
        candidates: The interfaces of every host.
        wanted: Comma list of interface names, addresses and subnets (CIDR) to choose among; each host needs one
            of them. Where they leave a host one address only, that is taken without a common subnet.
        routes: Asks the routing tables; called once, only where no subnet is common.
        names: Name of every host, for errors.

    Raises:
        OptionError: `wanted` does not parse.
        NetworkError: A host has no such address, or nothing joins the hosts; with a table of what there is.
    """
    marked = _marked(candidates, wanted)
    left = [[interface for interface, obstacle in host if not obstacle] for host in marked]
    chosen = _joined(left, wanted, routes) if all(left) else ()
    if not chosen:
        shown = [host for host, usable in enumerate(left) if not usable] or list(range(len(left)))
        table = _table(marked, names or [f"host {host}" for host in range(len(left))], shown)
        raise NetworkError(
            f"choose the interface of {len(left)} host(s)" + f", HPCCOMM_INTERFACE={wanted}" * bool(wanted),
            found=("no common subnet and no route between" if all(left) else "no usable address on") + f":{table}",
            remedy="set HPCCOMM_INTERFACE to interfaces, addresses or subnets of which each host has one in use",
            everywhere=True,
        )
    return chosen


def common(candidates: Candidates, wanted: str | None = None) -> dict[str, int]:
    """Give the subnets that join hosts, `select`'s first, each with the Mbit/s of its slowest host, 0 where unknown."""
    left = [[interface for interface, obstacle in host if not obstacle] for host in _marked(candidates, wanted)]
    return {str(option[0].subnet): min(one.speed for one in option) for option in _common_subnets(left)}


def listen(address: str, port: int = 0) -> socket.socket:
    """Listen on one address only.

    Args:
        address: IPv4 or IPv6 address of this host, no name.
        port: 0 lets the kernel choose; `getsockname()[1]` tells.

    Raises:
        NetworkError: The port is taken, or the address is not this host's.
    """
    try:
        return socket.create_server((address, port), family=_family(address), backlog=_BACKLOG)
    except (OSError, ValueError, OverflowError) as error:
        code: int = getattr(error, "errno", None) or 0
        raise NetworkError(
            f"listen on {address}, port {port or 'chosen by the kernel'}",
            found=os.strerror(code) if code else str(error),
            remedy=_REMEDIES.get(code, "give an address of this host and a port from 0 to 65535"),
        ) from error


def _family(address: str) -> socket.AddressFamily:
    return socket.AF_INET if ipaddress.ip_address(address).version == 4 else socket.AF_INET6


def _gather(exchange: Exchange, call: Callable[[], T]) -> list[T]:
    """Give what `call` returns on every rank; where it fails on one, all ranks raise that."""
    return exchange.all_gather(together(exchange, call))


def _refuse_difference(wishes: Sequence[str | None]) -> None:
    other = next((rank for rank, wish in enumerate(wishes) if wish != wishes[0]), None)
    if other is not None:
        one, two = (f"{wishes[rank] or 'unset'} on rank {rank}" for rank in (0, other))
        remedy = "set it alike on all ranks (mpirun -x, mpiexec -genv, srun --export), as a comma list if need be"
        raise _refusal(f"it is {one}, {two}", remedy)


def _refusal(found: str, remedy: str) -> OptionError:
    return OptionError("follow HPCCOMM_INTERFACE", found=found, remedy=remedy, everywhere=True)


def _matcher(wanted: str) -> Callable[[Interface], bool]:
    names, subnets = set(), []
    for term in map(str.strip, wanted.split(",")):
        try:
            subnets.append(ipaddress.ip_network(term, strict=False))
        except ValueError as error:
            if not term or "/" in term:
                remedy = "give interface names, addresses or subnets such as 10.1.0.0/16, separated by commas"
                raise _refusal(f"it is {wanted!r}: {error}", remedy) from None
            names.add(term)
    return lambda interface: interface.name in names or any(interface.ip in subnet for subnet in subnets)


def _marked(candidates: Candidates, wanted: str | None) -> Marked:
    """Put next to every interface why it cannot be taken; an empty text where it can."""
    matches = _matcher(wanted) if wanted else None
    times = Counter(ip for host in candidates for ip in {interface.ip for interface in host})
    several = len(candidates) > 1

    def obstacle(interface: Interface) -> str:
        reasons = {
            "not asked for": matches is not None and not matches(interface),
            "down": not interface.is_up,
            "loopback": several and interface.is_loopback,
            "not loopback": not several and not matches and not interface.is_loopback,
            "link-local": interface.ip.is_link_local,
            "on other hosts too": times[interface.ip] > 1,
        }
        return next((reason for reason, holds in reasons.items() if holds), "")

    return [[(interface, obstacle(interface)) for interface in host] for host in candidates]


def _joined(left: Candidates, wanted: str | None, routes: Routes | None) -> tuple[Interface, ...]:
    """Take the best common subnet, else what `wanted` left, else what the routing tables use; perhaps nothing."""
    if common := _common_subnets(left):
        return common[0]
    if wanted and all(len({interface.ip.version for interface in host}) == len(host) for host in left):
        return _one_family(left)
    used = routes(left) if routes else [()] * len(left)
    return _one_family([_picked(host, addresses) for host, addresses in zip(left, used, strict=True)])


def _common_subnets(left: Candidates) -> list[tuple[Interface, ...]]:
    shared = set.intersection(*({interface.subnet for interface in host} for host in left))
    options = [tuple(min((i for i in host if i.subnet == one), key=_order) for host in left) for one in shared]
    return sorted(options, key=lambda option: (-min(i.speed for i in option), _order(option[0])))


def _order(interface: Interface) -> tuple[int, int]:
    return interface.ip.version, int(interface.ip)


def _one_family(options: Candidates) -> tuple[Interface, ...]:
    """Take every host's first address of the first family that all hosts have."""
    for version in (4, 6):
        chosen = [[interface for interface in host if interface.ip.version == version] for host in options]
        if all(chosen):
            return tuple(host[0] for host in chosen)
    return ()


def _picked(host: Sequence[Interface], addresses: Sequence[str]) -> list[Interface]:
    return [interface for address in addresses for interface in host if interface.address == address]


def _sources(left: Candidates, mine: int, route: Callable[[str], str | None]) -> tuple[str, ...]:
    """Ask for the own addresses towards the first other host's candidates, fast interfaces first."""
    others = sorted(left[0 if mine else 1], key=lambda interface: (-interface.speed, _order(interface)))
    return tuple(source for other in others if (source := route(other.address)) is not None)


def _table(marked: Marked, names: Sequence[str], shown: Sequence[int]) -> str:
    rows = [("host", "interface", "address", "")]
    for host in shown[:8]:
        for interface, obstacle in marked[host]:
            rows.append((names[host], interface.name, f"{interface.address}/{interface.prefix}", obstacle))
        if not marked[host]:
            rows.append((names[host], "none", "", ""))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    lines += [f"and {len(shown) - 8} more hosts"] * (len(shown) > 8)
    return "".join(f"\n    {line}" for line in lines)
