"""Ports that the user chose for the ranks' rendezvous, and who listens on them already."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from hpccomm.doctor.case import Case
from hpccomm.doctor.checks.check import Check
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.launch.launchers import TORCHRUN

_PORTS = ("HPCCOMM_STORE_PORT", "MASTER_PORT")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Find who listens, on this host, on the ports that the environment names for rank 0."""
    found: dict[str, Any] = {}
    for name in _PORTS:
        text = environ.get(name, "")
        if text.isdecimal() and 0 < int(text) < 65536 and not (name == "MASTER_PORT" and TORCHRUN.started(environ)):
            found[name] = {"port": int(text), "holders": _holders(int(text), _address(name, environ))}
    return found


def _address(name: str, environ: Mapping[str, str]) -> str:
    """Give the address that rank 0 will listen on, empty where that is not known or any."""
    if name == "MASTER_PORT":
        with suppress(OSError):
            return socket.gethostbyname(environ.get("MASTER_ADDR", ""))
    return ""


def _holders(port: int, address: str) -> list[str]:
    import psutil

    found = []
    for one in psutil.net_connections("tcp"):
        if one.status != psutil.CONN_LISTEN or not one.laddr or one.laddr.port != port:
            continue
        if not address or one.laddr.ip in (address, "0.0.0.0", "::"):
            name = ""
            with suppress(psutil.Error):
                name = f", process {one.pid} ({psutil.Process(one.pid).name()})" if one.pid else ""
            found.append(f"{one.laddr.ip}:{port}{name}")
    return found


def judge(case: Case) -> Iterator[Finding]:
    """A port is a fault where somebody has it; hpccomm's own, unless a world stands that has it or was refused it."""
    for name, facts in case.sights[0].facts.get("ports", {}).items():
        is_known = name == "HPCCOMM_STORE_PORT" and bool(case.trial.topology)
        if facts["holders"] and not is_known:
            yield Finding(
                Severity.ERROR,
                "ports",
                f"the rendezvous port {facts['port']} is taken on {case.sights[0].host}",
                found=f"{name}={facts['port']}, and there listens {', '.join(facts['holders'])}",
                remedy="end what listens there, or let the kernel choose a free port",
                setting=f"unset {name}",
            )


CHECK = Check("ports", look, judge, scope="job")
