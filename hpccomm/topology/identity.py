"""What one rank knows of where it runs, read from the kernel and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class NodeIdentity:
    """What one rank knows of the node it is on.

    Attributes:
        hostname: The kernel's name of the host.
        boot_id: The kernel's id of this boot, empty where it cannot be read.
        shared: Lowest world rank in MPI's shared-memory split around this rank; None without MPI.
        claimed: HPCCOMM_NODE_ID of this rank; None where unset or empty.
        ranks_per_node: HPCCOMM_RANKS_PER_NODE of this rank as it stands there; None where unset or empty.
        socket: The processor socket that this rank is bound to; None where it may run on several.
        switch: The network switch of this host, by HPCCOMM_SWITCH_ID or Slurm's topology; None where unknown.
    """

    hostname: str
    boot_id: str
    shared: int | None
    claimed: str | None
    ranks_per_node: str | None
    socket: str | None = None
    switch: str | None = None


def identify(environ: Mapping[str, str], shared: int | None) -> NodeIdentity:
    """Read this process's node identity; `shared` as there (lowest rank of its shared-memory split)."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        boot_id = ""
    claimed, ranks_per_node = environ.get("HPCCOMM_NODE_ID"), environ.get("HPCCOMM_RANKS_PER_NODE")
    hostname = os.uname().nodename
    return NodeIdentity(hostname, boot_id, shared, claimed or None, ranks_per_node or None, _socket(), _switch(environ))


def _socket() -> str | None:
    packages = set()
    for cpu in os.sched_getaffinity(0):
        file = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id")
        try:
            packages.add(file.read_text(encoding="ascii").strip())
        except OSError:
            return None
    return packages.pop() if len(packages) == 1 else None


def _switch(environ: Mapping[str, str]) -> str | None:
    """Read the switch's name; Slurm writes the path of switches down to the node as ``spine.leaf.node``."""
    named = environ.get("HPCCOMM_SWITCH_ID")
    if named:
        return named
    path, pattern = (environ.get(f"SLURM_TOPOLOGY_ADDR{end}", "").split(".") for end in ("", "_PATTERN"))
    return ".".join(path[:-1]) if pattern[-1] == "node" and "switch" in pattern and len(path) > 1 else None
