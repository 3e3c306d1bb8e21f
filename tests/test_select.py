"""What `auto` takes, and why."""

from __future__ import annotations

import pytest

from hpccomm.backends.select import choose
from hpccomm.backends.strict import polled
from hpccomm.expression import parse
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


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("mpi4py", "mpi4py(deadline=strict)"),
        ("auto", "auto(deadline=strict)"),
        ("hierarchical(auto, gloo, by=2)", "hierarchical(auto(deadline=strict), gloo, by=2)"),
        ("ring(mpi4py)", "ring(mpi4py)"),
        ("shm(crossover=8)", "shm(crossover=8, deadline=strict)"),
        ("mpi4py(deadline=arrival)", "mpi4py(deadline=arrival)"),
        ("faulty(mpi4py, auto)", "faulty(mpi4py(deadline=strict), auto)"),
    ],
)
def test_what_can_be_polled_is(asked: str, given: str) -> None:
    assert str(polled(parse(asked))) == given
