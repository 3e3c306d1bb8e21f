"""Give a group another backend of the same kind, under its next generation, where the old one is dead or doubtful.

The group stays the object that it is. Ranks meet in the job's store first, under the deadline, as nothing of the old
generation can be relied on.
"""

from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist

from hpccomm.backends.c10d import PrefixStore, Store
from hpccomm.backends.process_group import HpccommProcessGroup
from hpccomm.bootstrap import plugin
from hpccomm.errors import DeadlineError, UnsupportedError
from hpccomm.watch.flight import GroupLog


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
    generation = log.generation + 1
    runner.stop("it is made anew")
    store = PrefixStore(f"hpccomm/renewed/{log.name}#{generation}", booted.store)
    _meet(store, log, runner.timeout_s)
    control = plugin.control_of(log.name, log.ranks, booted, store, timeout_s=runner.timeout_s, generation=generation)
    try:
        backend = plugin.built(runner.asked, control)
    finally:
        control.close()
    runner.renew(backend)


def _meet(store: Store, log: GroupLog, timeout_s: float) -> None:
    """Wait for the group's ranks to come to its renewal, and to know that all have; none is left behind alone."""
    end = time.monotonic() + timeout_s
    for stage in ("came", "saw all"):
        keys = {rank: f"{stage}/{rank}" for rank in log.ranks}
        mine = keys[log.ranks[log.rank]]
        store.set(mine, "")
        try:
            store.wait(list(keys.values()), timedelta(seconds=max(end - time.monotonic(), 0.1)))
        except RuntimeError as error:
            absent = [rank for rank, key in keys.items() if not store.check([key])]
            store.delete_key(mine)
            raise DeadlineError(
                f"renew group {log.name} over {log.expression}",
                found=f"no sign of rank {', '.join(map(str, absent))} within {timeout_s:g} s",
                remedy="call renew on all ranks of the group, or end the job",
            ) from error
