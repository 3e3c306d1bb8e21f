"""Which of its host's GPUs each rank takes, from what the ranks of the host see; pure.

CUDA has read CUDA_VISIBLE_DEVICES by then, whatever form it has and whoever set it, so that only names count here: two
ranks that see the same name see the same device, each perhaps under another index.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hpccomm.topology.grouping import count, listed, ranges


@dataclass(frozen=True)
class Binding:
    """The GPU that a rank takes.

    Attributes:
        index: Its index among the devices that the rank sees.
        name: Its name.
        sharers: The local ranks that take the same one, this one among them.
    """

    index: int
    name: str
    sharers: tuple[int, ...]

    @property
    def note(self) -> str:
        """What users should know of a device that several ranks share; else nothing."""
        if len(self.sharers) == 1:
            return ""
        return f"GPU {self.name} is shared by {count(len(self.sharers), 'rank')} of its host ({ranges(self.sharers)})"


def device_names(variable: str | None, uuids: Sequence[str]) -> tuple[str, ...]:
    """Name the devices that CUDA shows a process.

    Args:
        variable: CUDA_VISIBLE_DEVICES, or None where it is unset.
        uuids: Each device's UUID as CUDA tells it.

    Returns:
        The UUIDs; for an instance of a partitioned GPU (MIG), which some drivers give the UUID of the whole GPU, the
        name by which it was asked for.
    """
    asked = (variable or "").partition(",")[0].strip()
    if asked.startswith("MIG-") and len(uuids) == 1:  # CUDA shows one instance a process
        return (asked,)
    return tuple(uuids)


def bind(visible: Sequence[Sequence[str]], local_rank: int, held: Sequence[str] = ()) -> Binding | None:
    """Choose the GPU of a rank: in the order of the ranks, each takes the least taken of those it sees.

    Where all see all, that is the one with the number of the local rank; where a launcher gave each rank devices of its
    own, the first of these; where there are fewer devices than ranks, they are shared evenly.

    Args:
        visible: What each rank of the host sees, by local rank, in CUDA's order.
        local_rank: The rank.
        held: What each rank has taken before, which it keeps; empty where none has.

    Returns:
        None where the rank sees no device.
    """
    taken: list[str] = []
    for rank, seen in enumerate(visible):
        taken.append(held[rank] if any(held) else min(seen, key=taken.count, default=""))
    mine = taken[local_rank]
    if not mine:
        return None
    sharers = tuple(rank for rank, name in enumerate(taken) if name == mine)
    return Binding(visible[local_rank].index(mine), mine, sharers)


def shared_devices(hosts: Sequence[int], names: Sequence[str]) -> str:
    """Say which ranks take one device of one host: ``ranks 0,2 on GPU-…``; nothing where each has its own.

    Args:
        hosts: The host of each rank.
        names: The name of each rank's device.
    """
    holders: dict[tuple[int, str], list[int]] = {}
    for rank, where in enumerate(zip(hosts, names, strict=True)):
        holders.setdefault(where, []).append(rank)
    return listed([f"ranks {ranges(ranks)} on {name}" for (_, name), ranks in holders.items() if len(ranks) > 1])
