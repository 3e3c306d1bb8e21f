"""The libraries' settings that a program gives `init`: fit for every host, alike on all ranks, in the environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from hpccomm import network
from hpccomm.bootstrap.settings import refuse_differences
from hpccomm.exchange import Exchange, together
from hpccomm.transport_options import Host, TransportOptions

_INFINIBAND = Path("/sys/class/infiniband")


def agreed_settings(exchange: Exchange, given: Sequence[TransportOptions]) -> dict[str, str]:
    """Check settings on every host, compare them between ranks, and give the variables that make them; collective.

    Raises:
        OptionError: The same on all ranks: one does not fit a host, or ranks differ in one that names nothing of hosts.
    """
    together(exchange, lambda: _check(given))
    variables = {name: value for options in given for name, value in options.environment.items()}
    may_differ = frozenset[str]().union(*(options.of_host for options in given))
    alike = {name: value for name, value in variables.items() if name not in may_differ}
    refuse_differences(exchange.all_gather(alike), "give hpccomm.init the same settings on all ranks")
    return variables


def notes(variables: dict[str, str]) -> list[str]:
    """Say which variables of the environment give way."""
    before = {name: os.environ.get(name) for name in variables}
    return [
        f"{name}={value} as init was told, not {before[name]} as the environment has it"
        for name, value in variables.items()
        if before[name] not in (None, value)
    ]


def _check(given: Sequence[TransportOptions]) -> None:
    if given:
        interfaces = sorted({interface.name for interface in network.interfaces()})
        hcas = sorted(entry.name for entry in _INFINIBAND.iterdir()) if _INFINIBAND.is_dir() else []
        for options in given:
            options.check_host(Host(os.uname().nodename, interfaces, hcas))
