"""Levels other than nodes: sockets, switches, numbers of ranks."""

from __future__ import annotations

import pytest

from hpccomm.errors import OptionError
from hpccomm.topology import NodeIdentity, identify, resolve


def ranks(*places: tuple[str, str | None, str | None]) -> list[NodeIdentity]:
    return [NodeIdentity(host, "boot", None, None, None, socket, switch) for host, socket, switch in places]


EIGHT = ranks(*((host, socket, "left" if host < "c" else "right") for host in "abcd" for socket in "01"))


def test_switches_join_hosts_and_sockets_cut_them() -> None:
    topology = resolve(5, EIGHT)
    assert topology.by("switch").all_intra_node() == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert topology.by("switch").inter_node == (1, 5)
    assert topology.by("socket").all_intra_node() == tuple((rank,) for rank in range(8))
    assert topology.by("node") is topology
    assert topology.by(1).num_nodes == 8


def test_levels_go_with_a_subset() -> None:
    rail = resolve(4, EIGHT).subset([6, 4, 2, 0])
    assert rail.by("switch").all_intra_node() == ((0, 1), (2, 3))
    assert rail.by("switch").node_rank == 0


def test_a_level_that_some_rank_does_not_know_is_refused() -> None:
    topology = resolve(0, [*EIGHT[:7], NodeIdentity("d", "boot", None, None, None, "1", None)])
    assert topology.by("socket").num_nodes == 8
    for level in ("switch", "rack", True, 0):
        with pytest.raises(OptionError):
            topology.by(level)


@pytest.mark.parametrize(
    ("environ", "switch"),
    [
        ({}, None),
        ({"HPCCOMM_SWITCH_ID": "s7"}, "s7"),
        ({"SLURM_TOPOLOGY_ADDR": "n4", "SLURM_TOPOLOGY_ADDR_PATTERN": "node"}, None),
        ({"SLURM_TOPOLOGY_ADDR": "core.s1.n4", "SLURM_TOPOLOGY_ADDR_PATTERN": "switch.switch.node"}, "core.s1"),
        ({"SLURM_TOPOLOGY_ADDR": "a.b"}, None),
    ],
)
def test_where_the_switch_is_read(environ: dict[str, str], switch: str | None) -> None:
    assert identify(environ, None).switch == switch
