"""NCCL where it cannot run, and what it needs of the ranks; what runs on GPUs is in tests/gpu."""

from __future__ import annotations

import pytest
import torch

from hpccomm.backends.nccl_ranks import Card, refuse, why_not
from hpccomm.errors import BackendError
from hpccomm.topology import NodeIdentity, resolve


def cards(names: str, *, may_share: bool = False) -> list[Card]:
    return [Card("" if name == "-" else name, "torch sees no GPU" if name == "-" else "", may_share) for name in names]


@pytest.mark.parametrize(
    ("hosts", "found", "refusal"),
    [
        ("aabb", cards("1212"), ""),
        ("aabb", cards("1122", may_share=True), ""),
        ("aabb", cards("1122"), "ranks 0-1 on 1, ranks 2-3 on 2: NCCL takes one rank a GPU"),
        ("abab", cards("11--"), "torch sees no GPU on a (rank 2); what runs here, on host memory: mpi4py, gloo"),
    ],
)
def test_ranks_are_refused_before_nccl_waits_for_them(hosts: str, found: list[Card], refusal: str) -> None:
    topology = resolve(0, [NodeIdentity(host, "boot", None, None, None) for host in hosts])
    if not refusal:
        refuse(topology, found, "nccl", [])
        return
    with pytest.raises(BackendError) as error:
        refuse(topology, found, "nccl", ["mpi4py", "gloo"])
    assert error.value.found == refusal
    assert error.value.everywhere


def test_a_process_without_a_gpu_says_so() -> None:
    assert why_not(torch.device("cpu")).startswith("torch ")
