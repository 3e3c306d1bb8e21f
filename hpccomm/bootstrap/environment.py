"""Variables that hold while a world stands: torchrun's, for third-party code, and the libraries' settings."""

from __future__ import annotations

import os
from collections.abc import Mapping

from hpccomm.bootstrap.connect import Boot
from hpccomm.bootstrap.settings import RANK_PID

Saved = dict[str, str | None]


def export(boot: Boot, *, agent: bool = False) -> Saved:
    """Set RANK, WORLD_SIZE and the rest of torchrun's variables.

    Args:
        boot: The connected ranks.
        agent: Tell torch that the store is served already, so that `init_process_group` joins it.

    Returns:
        What stood there before, for `restore`.
    """
    topology = boot.topology
    address, port = boot.endpoint
    values: dict[str, object] = {
        "RANK": topology.rank,
        "WORLD_SIZE": topology.world_size,
        "LOCAL_RANK": topology.local_rank,
        "LOCAL_WORLD_SIZE": topology.local_world_size,
        "GROUP_RANK": topology.node_rank,
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        RANK_PID: boot.pid,
    }
    if agent and boot.serves_store:
        values |= {"TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
    return set_all({name: str(value) for name, value in values.items()})


def set_all(values: Mapping[str, str]) -> Saved:
    """Set variables, and give what stood there before, for `restore`."""
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    return saved


def restore(saved: Saved) -> None:
    """Put variables back as they were."""
    for name, value in saved.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
