"""What the host's own name resolves to: programs that ask for it tell the other hosts that address."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from hpccomm.doctor.case import Case, Facts, names
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.topology.grouping import listed


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Resolve the own name."""
    name = os.uname().nodename
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        return {"name": name, "addresses": [], "error": error.strerror or str(error)}
    addresses = list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))
    return {"name": name, "addresses": addresses, "error": ""}


def judge(case: Case) -> Iterator[Finding]:
    """Several hosts need names that other hosts can use."""
    if not case.has_several_hosts:
        return
    seen = case.of_hosts("names")
    local = [host for host, facts in seen if facts["addresses"] and all(map(_is_loopback, facts["addresses"]))]
    if local:
        shown = listed([f"{host.name} is {', '.join(facts['addresses'])}" for host, facts in seen if host in local])
        yield Finding(
            Severity.WARNING,
            "names",
            f"the own name resolves to loopback on {names(local)}",
            found=f"{shown}; hpccomm takes no notice, but what asks for the own name (Gloo by itself, "
            "MASTER_ADDR=$(hostname)) tells the other hosts an address that they cannot reach",
            remedy="in /etc/hosts, give the name the address by which the other hosts reach it; or name the interface",
            setting=f"export GLOO_SOCKET_IFNAME={_interface(case)}",
        )
    unknown = [host for host, facts in seen if not facts["addresses"]]
    if unknown:
        yield Finding(
            Severity.WARNING,
            "names",
            f"the own name does not resolve on {names(unknown)}",
            found=listed(sorted({facts["error"] for host, facts in seen if host in unknown})),
            remedy="add the hosts to DNS, or to /etc/hosts everywhere",
        )


def show(facts: Facts) -> Iterator[Line]:
    """Say what the name resolves to."""
    yield Line("own name", ", ".join(facts["addresses"]) or f"does not resolve: {facts['error']}", is_own=True)


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


def _interface(case: Case) -> str:
    """Name the interface with the first host's chosen address."""
    for host, facts in case.of_hosts("interfaces")[:1]:
        chosen = case.trial.addresses[host.sights[0].rank] if case.trial.addresses else ""
        return next((one["name"] for one in facts["interfaces"] if one["address"] == chosen), "eth0")
    return "eth0"


CHECK = Check("names", look, judge, show)
