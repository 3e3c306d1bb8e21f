"""Situations in which all backends are checked: where the ranks run, on what hosts, and what the world must say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.cluster.placement import Placement
from bench.cluster.settings import Settings
from harness import ROOT, Mpi, Result

PROGRAM = Path(__file__).parent / "programs" / "all_backends.py"
BACKENDS = ["mpi4py", "gloo", "hierarchical(mpi4py, gloo)", "hierarchical(mpi4py, mpi4py)"]
JOB_S = 150.0


@dataclass(frozen=True)
class Situation:
    """One job.

    Attributes:
        ranks: Number of each rank's host.
        topology: What the world says of it.
        settings: Of the cluster.
        env: Of the job.
        network: Number of the cluster's network that is to be chosen.
        open_mpi_only: Why MPICH cannot run it.
    """

    ranks: str
    topology: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    network: int = 0
    open_mpi_only: str = ""

    @property
    def placement(self) -> Placement:
        """The host of each rank."""
        return tuple(f"node{number}" for number in self.ranks)


def argv(mpi: Mpi) -> list[str]:
    """Give the program that checks all backends."""
    return [mpi.python, str(PROGRAM), *BACKENDS]


def environment(mpi: Mpi, env: Mapping[str, str]) -> dict[str, str]:
    """Give a job's environment, in which programs find the tests' modules."""
    paths = f"{ROOT}:{ROOT / 'tests'}"
    return {**mpi.environment(), "PYTHONPATH": paths, **env}


def check(result: Result, settings: Settings, *, placement: Placement, topology: str, network: int = 0) -> None:
    """Check what the program said: right results, and the hosts as they are."""
    assert result.returncode == 0, result
    assert not result.timed_out, result
    assert not result.leftovers, result
    addresses = {host.name: host.addresses[network] for host in settings.nodes}
    (line,) = (line for line in result.stdout.splitlines() if line.startswith("{"))
    assert json.loads(line) == {
        "topology": topology,
        "hostnames": list(placement),
        "listens": [[addresses[host]] for host in placement],
        "checked": ["auto", *BACKENDS],
    }
