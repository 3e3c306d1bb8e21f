"""What NCCL needs of the ranks of a group before it is called: a GPU each, which no other rank has."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpccomm.backends.context import Context
from hpccomm.errors import BackendError
from hpccomm.topology import Topology
from hpccomm.topology.binding import shared_devices

SHARING = "NCCL_MULTI_RANK_GPU_ENABLE"
SHARES_SINCE = (2, 30)  # before, NCCL takes no two ranks on one GPU, nor on two instances (MIG) of one


@dataclass(frozen=True)
class Card:
    """A rank's GPU as NCCL tells GPUs apart, and why it cannot be used.

    Attributes:
        name: Its UUID, or before NCCL 2.30 its place on the bus.
        fault: Why NCCL cannot run on this rank; nothing where it can.
        may_share: Whether NCCL takes other ranks beside this one on it.
    """

    name: str
    fault: str
    may_share: bool


def meet(context: Context, backend: str, fault: str = "") -> None:
    """See that NCCL can run on all ranks of a group, which would otherwise wait for each other in it; collective.

    Args:
        context: The group.
        backend: The backend's name, for the error.
        fault: What is known already to stand in the way on this rank.

    Raises:
        BackendError: The same on all ranks.
    """
    cards = context.exchange.all_gather(_card(context.device, fault or why_not(context.device)))
    mpi = ["mpi4py"] if context.communicator is not None else []
    others = [*mpi, "gloo", *(["shm"] if context.topology.one_host else [])]
    refuse(context.topology, cards, backend, others)


def refuse(topology: Topology, cards: Sequence[Card], backend: str, others: Sequence[str]) -> None:
    """Raise where NCCL cannot run on some rank, or some of them share a GPU and it would not have that.

    Args:
        topology: The ranks.
        cards: The GPU of each rank.
        backend: The backend's name, for the error.
        others: Backends that run here.
    """
    for rank, card in enumerate(cards):
        if card.fault:
            host = topology.hostnames[topology.hosts[rank]]
            raise BackendError(
                f"build backend {backend}",
                found=f"{card.fault} on {host} (rank {rank}); what runs here, on host memory: {', '.join(others)}",
                remedy="start one rank a GPU where there are some (Slurm: --gpus-per-node), or take another backend",
                everywhere=True,
            )
    shared = shared_devices(topology.hosts, [card.name for card in cards])
    if shared and not all(card.may_share for card in cards):
        raise BackendError(
            f"build backend {backend}",
            found=f"{shared}: NCCL takes one rank a GPU",
            remedy=f"start as many ranks as GPUs, or set {SHARING}=1 (NCCL from {'.'.join(map(str, SHARES_SINCE))} on)",
            everywhere=True,
        )


def why_not(device: torch.device) -> str:
    """Say why NCCL cannot run in this process; nothing where it can."""
    if torch.version.cuda is None:
        return "torch is built without CUDA"
    if device.type == "cuda":
        return ""
    return "some ranks see a GPU and some none" if torch.cuda.is_available() else "torch sees no GPU"


def _card(device: torch.device, fault: str) -> Card:
    if fault:
        return Card("", fault, may_share=False)
    card = torch.cuda.get_device_properties(device)
    version = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    if version >= SHARES_SINCE:
        return Card(str(card.uuid), "", may_share=os.environ.get(SHARING) == "1")
    place = f"{card.pci_domain_id:04x}:{card.pci_bus_id:02x}:{card.pci_device_id:02x}"  # type: ignore[attr-defined]
    return Card(place, "", may_share=False)
