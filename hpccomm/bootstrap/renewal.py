"""Give a group another backend of the same kind, under its next generation, where the old one is dead or doubtful.

The group stays the object that it is. Ranks meet in the job's store first, under the deadline, as nothing of the old
generation can be relied on.
"""

from __future__ import annotations

import torch.distributed as dist

from hpccomm.backends.c10d import PrefixStore
from hpccomm.backends.process_group import HpccommProcessGroup
from hpccomm.bootstrap import plugin
from hpccomm.bootstrap.store import meet
from hpccomm.errors import UnsupportedError


def renew(group: dist.ProcessGroup | None = None) -> None:
    """Renew a group; collective over its ranks. What is under way in it fails.

    Args:
        group: A group over hpccomm; None is torch's default group.

    Raises:
        DeadlineError: Ranks did not come within the group's deadline; the text says which.
        HpccommError: The backend cannot be built again; the same on all ranks.
    """
    face = dist.group.WORLD if group is None else group
    if not isinstance(face, HpccommProcessGroup):
        raise UnsupportedError(
            f"renew {face!r}", found="no group of hpccomm alone", remedy="pass a group whose backend is hpccomm"
        )
    runner, booted = face._runner, plugin.standing_boot()
    log = runner.log
    runner.stop("it is made anew")
    store = PrefixStore(f"hpccomm/renewed/{log.name}#{log.generation + 1}", booted.store)
    meet(
        store,
        log.ranks,
        log.ranks[log.rank],
        timeout_s=runner.timeout_s,
        asked=f"renew group {log.name} over {log.expression}",
        remedy="call renew on all ranks of the group, or end the job",
    )
    log.begin_generation()  # whether or not this attempt succeeds: the next one must meet nothing of it
    control = plugin.control_of(
        log.name, log.ranks, booted, store, timeout_s=runner.timeout_s, generation=log.generation
    )
    try:
        backend = plugin.built(runner.asked, control)
    finally:
        control.close()
    runner.renew(backend)
