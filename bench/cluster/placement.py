"""Which rank runs on which host, and the command lines that put it there; pure.

A placement is the host of each rank. It knows no cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Placement = tuple[str, ...]


def by_slot(hosts: Sequence[str], *, np: int, slots: int) -> Placement:
    """Fill one host after the other; ValueError where the slots are too few."""
    if np > slots * len(hosts):
        raise ValueError(f"{np} ranks on {len(hosts)} hosts with {slots} slots each")
    return by_counts(hosts, [slots] * len(hosts))[:np]


def by_node(hosts: Sequence[str], *, np: int) -> Placement:
    """Deal the ranks out to the hosts in turn."""
    return tuple(hosts[rank % len(hosts)] for rank in range(np))


def by_counts(hosts: Sequence[str], counts: Sequence[int]) -> Placement:
    """Put so many consecutive ranks on each host; ValueError where there are more counts than hosts."""
    if len(counts) > len(hosts):
        raise ValueError(f"{len(counts)} counts for {len(hosts)} hosts")
    return tuple(host for host, count in zip(hosts, counts, strict=False) for _ in range(count))


class Mpi(Protocol):
    """An MPI: where its mpirun is, and whether that is Open MPI's (5) or Hydra."""

    @property
    def mpirun(self) -> str:
        """Path of the launcher."""
        ...

    @property
    def is_open_mpi(self) -> bool:
        """Whether it is Open MPI."""
        ...

    @property
    def options(self) -> Sequence[str]:
        """Options of its mpirun."""
        ...


def launcher(mpi: Mpi, placement: Placement) -> list[str]:
    """Give mpirun and the options that start one rank after the other on the hosts of a placement."""
    exactly = ["--host", ",".join(placement), "--map-by", "seq"] if mpi.is_open_mpi else ["-hosts", ",".join(placement)]
    return [mpi.mpirun, *mpi.options, *exactly, "-np", str(len(placement))]
