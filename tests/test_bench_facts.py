"""Which algorithm a backend runs, and the bytes that leave a node: against schedules, formulas and counting."""

from __future__ import annotations

import pytest

from hpccomm.algorithms import ALGORITHMS, ring
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.facts import algorithm, stand_in, wire_factor
from hpccomm.expression import parse
from hpccomm.schedule import shares
from hpccomm.topology import Topology

HIERARCHY = "hierarchical(mpi4py, gloo)"


def on_nodes(nodes: str) -> Topology:
    """Give a topology whose rank i is on the node that the i-th letter names."""
    numbers = tuple(sorted(set(nodes)).index(letter) for letter in nodes)
    return Topology(0, numbers, numbers, tuple(sorted(set(nodes))))


def factor_of(collective: str, backend: str, nodes: str) -> float | None:
    return wire_factor(COLLECTIVES[collective], parse(backend), on_nodes(nodes))


@pytest.mark.parametrize("nodes", ["AB", "AABBCC", "ABCABC", "AAABBC"])
def test_a_node_sends_what_a_rank_of_a_ring_of_nodes_sends(nodes: str) -> None:
    count, size = len(set(nodes)), 60
    blocks = shares(count, size)
    schedules = {
        "all_reduce": ring.all_reduce(0, count, size),
        "reduce_scatter": ring.reduce_scatter(0, count, blocks),
        "all_gather": ring.all_gather(0, count, blocks),
    }
    for name, steps in schedules.items():
        sent = sum(step.send[1] - step.send[0] for step in steps)
        assert factor_of(name, HIERARCHY, nodes) == pytest.approx(sent / size), name


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [("AABB", 1), ("ABAB", 2), ("AAAB", 1), ("ABAA", 1), ("AABBAB", 2), ("ABC", 1)],
)
def test_a_node_sends_to_the_next_rank_only_where_that_is_elsewhere(nodes: str, expected: int) -> None:
    assert factor_of("sendrecv", HIERARCHY, nodes) == expected


@pytest.mark.parametrize(
    ("collective", "backend", "nodes", "expected"),
    [
        ("all_reduce", "gloo", "AABB", None),
        ("all_reduce", HIERARCHY, "AAAA", None),
        ("barrier", HIERARCHY, "AABB", None),
        ("broadcast", HIERARCHY, "AABB", 1.0),
        ("all_reduce", "hierarchical(mpi4py, gloo, by=1)", "AAAA", 1.5),
        ("all_reduce", "hierarchical(mpi4py, gloo, by=2)", "AAAA", 1.0),
        ("all_reduce", f"faulty({HIERARCHY}, late)", "AABB", 1.0),
        ("all_reduce", f"ring({HIERARCHY})", "AABB", None),
    ],
)
def test_only_hierarchies_have_a_slow_link(collective: str, backend: str, nodes: str, expected: float | None) -> None:
    assert factor_of(collective, backend, nodes) == expected


@pytest.mark.parametrize(
    ("backend", "collective", "runs", "remark"),
    [
        ("mpi4py", "all_reduce", None, None),
        (HIERARCHY, "all_reduce", None, None),
        ("ring(gloo)", "all_reduce", "ring", None),
        ("faulty(ring(gloo), wrong)", "all_gather", "ring", None),
        ("direct(gloo)", "all_reduce", "direct", None),
        ("direct(gloo, shots=2)", "all_reduce", "pairwise", None),
        ("ring(gloo)", "broadcast", "tree", "ring has no broadcast: tree is measured"),
        ("tree(gloo)", "reduce_scatter", "pairwise", "tree has no reduce_scatter: pairwise is measured"),
        ("direct(gloo, shots=2)", "broadcast", "tree", "direct has no broadcast: tree is measured"),
        ("ring(gloo(threads=1))", "barrier", None, "its barrier is that of gloo(threads=1)"),
        ("ring(mpi4py)", "sendrecv", None, "its sendrecv is that of mpi4py"),
    ],
)
def test_what_stands_in_for_an_algorithm_is_named(
    backend: str, collective: str, runs: str | None, remark: str | None
) -> None:
    assert algorithm(parse(backend), COLLECTIVES[collective]) == runs
    assert stand_in(parse(backend), COLLECTIVES[collective]) == remark


def test_every_algorithm_runs_or_has_a_stand_in() -> None:
    for name in ALGORITHMS:
        for collective in COLLECTIVES.values():
            runs, remark = algorithm(parse(f"{name}(gloo)"), collective), stand_in(parse(f"{name}(gloo)"), collective)
            assert (runs == name) == (remark is None)
