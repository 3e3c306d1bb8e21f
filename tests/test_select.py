"""What `auto` takes, and why."""

from __future__ import annotations

import pytest

from hpccomm.backends.select import choose
from hpccomm.topology import NodeIdentity, resolve


@pytest.mark.parametrize(
    ("hosts", "has_mpi", "expression", "why"),
    [
        ("a", True, "mpi4py", "one rank"),
        ("aaaa", True, "mpi4py", "all on one node"),
        ("aaaa", False, "gloo", "MPI does not join"),
        ("abcd", True, "gloo", "4 nodes of one rank"),
        ("aabb", True, "hierarchical(mpi4py, gloo)", "on 2 nodes"),
        ("aaab", False, "hierarchical(gloo, gloo)", "on 2 nodes"),
    ],
)
def test_choice(hosts: str, has_mpi: bool, expression: str, why: str) -> None:
    topology = resolve(0, [NodeIdentity(host, "boot", None, None, None) for host in hosts])
    chosen, reason = choose(topology, has_mpi=has_mpi)
    assert str(chosen) == expression
    assert why in reason
