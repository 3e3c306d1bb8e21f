"""Go on without the ranks that have died: those that are left connect anew, and build on that what they had.

A rank that dies meanwhile is left out in turn: the others begin again, until an agreement says that all are well.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from hpccomm import ulfm
from hpccomm.bootstrap import tolerance
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.assembly import Assembly
from hpccomm.bootstrap.connect import Boot, introduce, watch_over
from hpccomm.bootstrap.settings import port_asked
from hpccomm.bootstrap.store import fresh, serve
from hpccomm.errors import WorldError
from hpccomm.exchange import MpiExchange
from hpccomm.rollcall import named
from hpccomm.topology import resolve

# Communicators with dead ranks: freeing one would need them
_KEPT: list[Any] = []
_attempts = 0  # alike on all ranks that are left


def shrink(
    boot: Boot, assembly: Assembly, build: Callable[[Boot], object], leave: Callable[[], object]
) -> tuple[tuple[int, ...], str]:
    """Connect the ranks that are left, and build on that; collective over them.

    Args:
        boot: What stands, of which nothing is used any more.
        assembly: Its ranks.
        build: Builds on what is connected; collective.
        leave: Takes down what stands, or was built so far, without the other ranks.

    Returns:
        The former numbers of the ranks that were lost, and what happened, in words.

    Raises:
        HpccommError: It cannot be built with the ranks that are left, or some did not come in time.
    """
    before = boot
    tolerance.mourn()
    while True:
        leave()
        _KEPT.append(boot.communicator)
        communicator = assembly.survivors(lambda: _others(before))
        assembly = Assembly(communicator, boot.timeout_s)
        failure: Exception | None = None
        try:
            boot = _connected(boot, communicator)
            build(boot)
        except Exception as error:
            failure = error
            ulfm.revoke(communicator)  # so that nobody waits in there for this rank
            boot = replace(boot, communicator=communicator)
        if assembly.agree(failure is None):
            lost = _lost_between(before.communicator, communicator)
            whole = before.topology.world_size
            return lost, f"the world shrank from {whole} to {whole - len(lost)} ranks: lost {_names(before, lost)}"
        if not assembly.bereaved:
            raise failure or WorldError(
                "shrink the world",
                found="another rank could not build it anew",
                remedy="see that rank's error",
            )


def _connected(before: Boot, communicator: Any) -> Boot:
    """Have the ranks of a communicator know each other, with a store of their own; collective."""
    global _attempts
    _attempts += 1
    exchange = MpiExchange(communicator, timeout_s=before.timeout_s, quiet_s=before.quiet_s, name="shrink")
    guard.rank, guard.size = exchange.rank, exchange.size
    everyone = introduce(exchange, os.environ, None, before.binding)
    topology = resolve(exchange.rank, [one.identity for one in everyone])
    store, endpoint = serve(exchange, before.address, port=port_asked(os.environ), timeout_s=before.timeout_s)
    now = replace(
        before,
        exchange=exchange,
        communicator=communicator,
        topology=topology,
        store=fresh(store, range(exchange.size), f"shrunk {_attempts}"),
        endpoint=endpoint,
    )
    watch_over(now, everyone, os.environ)
    return now


def _lost_between(before: Any, after: Any) -> tuple[int, ...]:
    """Give the ranks of a communicator that another one, shrunk from it, does not have."""
    from mpi4py import MPI

    kept = MPI.Group.Translate_ranks(after.Get_group(), None, before.Get_group())
    return tuple(rank for rank in range(before.size) if rank not in kept)


def _others(boot: Boot) -> str:
    ranks = [rank for rank in range(boot.topology.world_size) if rank != boot.topology.rank]
    return named(ranks, boot.exchange.describe)


def _names(boot: Boot, ranks: Sequence[int]) -> str:
    topology = boot.topology
    return ", ".join(f"rank {rank} on {topology.hostnames[topology.hosts[rank]]}" for rank in ranks) or "none"
