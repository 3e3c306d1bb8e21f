"""Network interfaces: which address the hosts reach each other by, and which ones mislead MPI."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hpccomm import network
from hpccomm.doctor.case import Case, Facts, Host, names
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.errors import HpccommError
from hpccomm.network import Interface
from hpccomm.topology.grouping import listed

_NET = Path("/sys/class/net")
_OPEN_MPI = ("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_btl_tcp_if_exclude")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """List the interfaces and their addresses."""
    found = network.interfaces()
    settings = {name: environ[name] for name in (*_OPEN_MPI, "HPCCOMM_INTERFACE") if environ.get(name)}
    return {"interfaces": [asdict(one) for one in found], "bridges": bridges(), "settings": settings}


def bridges() -> list[str]:
    """Name the bridges that no card of this host is plugged into: those of containers and virtual machines."""
    found = []
    for folder in sorted(_NET.iterdir()) if _NET.is_dir() else ():
        with suppress(OSError):
            ports = [port.name for port in (folder / "brif").iterdir()]
            if not any((_NET / port / "device").exists() for port in ports):
                found.append(folder.name)
    return found


def for_trial(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Give the environment in which Open MPI can join hosts whose networks mislead it, and what it is kept off.

    Every rank needs it, also those that do not look at the interfaces.
    """
    include, off = environ.get(_OPEN_MPI[0], ""), bridges()
    misses = include and not any(_names(include, one.name, one.address) for one in network.interfaces())
    given = {name: value for name, value in environ.items() if not (misses and name == _OPEN_MPI[0])}
    more = kept_off(given, off)
    return {**given, **more}, off if more else []


def kept_off(environ: Mapping[str, str], found: Sequence[str]) -> dict[str, str]:
    """Give the setting that keeps Open MPI off bridges too, unless the user set what it may use.

    Open MPI takes two hosts' bridges of one address for a network that joins the hosts, and waits there for ever.
    """
    include, exclude = (environ.get(name, "") for name in _OPEN_MPI)
    before = (exclude or "127.0.0.0/8").split(",")
    more = [name for name in found if name not in before]
    return {} if include or not more else {_OPEN_MPI[1]: ",".join([*before, *more])}


def judge(case: Case) -> Iterator[Finding]:
    """An address on two hosts, of those addresses that other hosts can reach, misleads what pairs them."""
    seen = case.of_hosts("interfaces")
    holders: dict[str, list[tuple[Host, str]]] = {}
    for host, facts in seen:
        for one in facts["interfaces"]:
            if one["is_up"] and _joins_hosts(one):
                holders.setdefault(one["address"], []).append((host, one["name"]))
    for address, where in holders.items():
        if len({id(host) for host, _ in where}) > 1:
            yield _twice(case, address, where)
    if case.has_several_hosts and _is_open_mpi(case):
        yield from _without_network(case)
        if not case.trial.joined and not case.trial.kept_off:
            yield from _suspects(case)


def _is_open_mpi(case: Case) -> bool:
    return any("Open MPI" in host.sights[0].facts.get("libraries", {}).get("mpi", "") for host in case.hosts)


def _without_network(case: Case) -> Iterator[Finding]:
    """Name the hosts that have nothing of what Open MPI may use: it ends the job, under srun without a word."""
    blind: dict[str, list[Host]] = {}
    for host, facts in case.of_hosts("interfaces"):
        include = facts["settings"].get(_OPEN_MPI[0], "")
        if include and not any(_names(include, one["name"], one["address"]) for one in facts["interfaces"]):
            blind.setdefault(include, []).append(host)
    for include, hosts in blind.items():
        yield Finding(
            Severity.ERROR,
            "interfaces",
            f"{_OPEN_MPI[0]}={include} names no interface of {names(hosts)}",
            found="Open MPI has no network there, and ends the job; the doctor left the setting out",
            remedy="name the network that joins the hosts",
            setting=f"export {_OPEN_MPI[0]}={chosen_subnet(case) or 'the subnet that joins the hosts'}",
        )


def _suspects(case: Case) -> Iterator[Finding]:
    """Name bridges that Open MPI may use, where it did not join the hosts and nobody heard of the other ones'."""
    for host, facts in case.of_hosts("interfaces"):
        include, exclude = (facts["settings"].get(name, "") for name in _OPEN_MPI)
        for one in facts["interfaces"]:
            where = one["name"], one["address"]
            is_used = not _names(exclude, *where) and (not include or _names(include, *where))
            if one["name"] in facts["bridges"] and _joins_hosts(one) and is_used:
                yield Finding(
                    Severity.WARNING,
                    "interfaces",
                    f"{one['name']} {one['address']} of {host.name} may be why Open MPI does not join the hosts",
                    found="it is a bridge of containers or virtual machines; where another host has the same address, "
                    "Open MPI takes it for a network, and waits there for ever",
                    remedy="name the network that joins the hosts",
                    setting=f"export {_OPEN_MPI[0]}=the subnet that joins the hosts, e.g. 10.1.0.0/16",
                )


def _twice(case: Case, address: str, where: Sequence[tuple[Host, str]]) -> Finding:
    settings = case.of_hosts("interfaces")[0][1]["settings"]
    include, exclude = (settings.get(name, "") for name in _OPEN_MPI)
    included = not include or any(_names(include, name, address) for _, name in where)
    is_settled = not included or all(_names(exclude, name, address) for _, name in where)
    subnet = chosen_subnet(case)
    kept = f"; the doctor kept it off {listed(list(case.trial.kept_off))}" if case.trial.kept_off else ""
    shown = listed([f"{host.name} ({name})" for host, name in where])
    return Finding(
        Severity.NOTE if is_settled else Severity.ERROR if _is_open_mpi(case) else Severity.WARNING,
        "interfaces",
        f"{address} is an address of {len(where)} hosts: {shown}",
        found="a bridge of containers or virtual machines joins no hosts. hpccomm and Gloo in it never take such an "
        f"address; Open MPI takes it for a network, and may wait there for ever{kept}",
        remedy="it is kept off by what is set already" if is_settled else "name the network that joins the hosts",
        setting="" if is_settled else f"export {_OPEN_MPI[0]}={subnet or 'the subnet that joins the hosts'}",
    )


def _names(terms: str, name: str, address: str) -> bool:
    """Tell whether a comma list of interface names and subnets, as Open MPI takes it, names an interface."""
    for term in filter(None, terms.split(",")):
        with suppress(ValueError):
            if ipaddress.ip_address(address) in ipaddress.ip_network(term, strict=False):
                return True
        if term == name:
            return True
    return False


def chosen(case: Case) -> dict[str, str]:
    """Give the address by which each host is reached, by host name; empty where none can be chosen."""
    if case.trial.addresses:
        return {host.name: case.trial.addresses[host.sights[0].rank] for host in case.hosts}
    seen = case.of_hosts("interfaces")
    if case.has_several_hosts and len(seen) < 2:
        return {}
    with suppress(HpccommError, KeyError, TypeError):  # also where another version looked
        candidates = [[Interface(**one) for one in facts["interfaces"]] for _, facts in seen]
        wanted = seen[0][1]["settings"].get("HPCCOMM_INTERFACE") if seen else None
        picked = network.select(candidates, wanted) if candidates else ()
        return {host.name: one.address for (host, _), one in zip(seen, picked, strict=True)}
    return {}


def chosen_subnet(case: Case) -> str:
    """Give the subnet of the first host's chosen address; empty where there is none."""
    addresses = chosen(case)
    for host, facts in case.of_hosts("interfaces")[:1]:
        for one in facts["interfaces"]:
            if one["address"] == addresses.get(host.name):
                return str(Interface(**one).subnet)
    return ""


def show(facts: Facts) -> Iterator[Line]:
    """List what may join hosts, and what was chosen."""
    shown = [
        f"{one['name']} {one['address']}/{one['prefix']}{_remarks(one, facts)}"
        for one in sorted(facts["interfaces"], key=lambda one: bool(one["address"] != facts["chosen"]))
        if one["address"] == facts["chosen"] or _joins_hosts(one)
    ]
    yield Line("interfaces", listed(shown, limit=4) or "none", is_own=True)


def _joins_hosts(interface: Facts) -> bool:
    return not (interface["is_loopback"] or ipaddress.ip_address(interface["address"]).is_link_local)


def _remarks(interface: Facts, facts: Facts) -> str:
    remarks = {
        " (chosen)": interface["address"] == facts["chosen"],
        " (down)": not interface["is_up"],
        " (a bridge of containers)": interface["name"] in facts["bridges"],
    }
    return "".join(remark for remark, holds in remarks.items() if holds)


CHECK = Check("interfaces", look, judge, show)
