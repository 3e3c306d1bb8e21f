"""Plans of clusters and placements of ranks, without any host."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `bench`, however pytest was started

from bench.cluster import state
from bench.cluster.placement import Placement, by_counts, by_node, by_slot, launcher
from bench.cluster.settings import Settings
from harness import Mpi

HOSTS = ("a", "b", "c")


@pytest.mark.parametrize(
    ("placement", "expected"),
    [
        (by_slot(HOSTS, np=4, slots=2), "aabb"),
        (by_slot(HOSTS, np=6, slots=2), "aabbcc"),
        (by_slot(HOSTS[::-1], np=3, slots=2), "ccb"),
        (by_node(HOSTS, np=7), "abcabca"),
        (by_node(HOSTS[::-1], np=2), "cb"),
        (by_counts(HOSTS, [3, 1]), "aaab"),
        (by_counts(HOSTS, [0, 1, 2]), "bcc"),
    ],
)
def test_placement(placement: Placement, expected: str) -> None:
    assert placement == tuple(expected)


def test_more_ranks_than_slots_or_counts_than_hosts_are_refused() -> None:
    with pytest.raises(ValueError, match="7 ranks"):
        by_slot(HOSTS, np=7, slots=2)
    with pytest.raises(ValueError, match="4 counts"):
        by_counts(HOSTS, [1, 1, 1, 1])


def test_launchers_are_told_each_ranks_host(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    mpirun, placement = str(tmp_path / "bin" / "mpirun"), ("b", "a", "b")
    assert launcher(Mpi("mpich", tmp_path), placement) == [mpirun, "-hosts", "b,a,b", "-np", "3"]
    (tmp_path / "bin" / "prterun").touch()
    expected = [mpirun, "--host", "b,a,b", "--map-by", "seq", "-np", "3"]
    assert launcher(Mpi("openmpi", tmp_path), placement) == expected


def test_each_host_has_a_link_to_each_network() -> None:
    settings = Settings(hosts=3, subnets=("10.77.0.0/24", "fd77::/64"), interfaces=("eth", "ens"))
    assert settings.names == ("node1", "node2", "node3")
    assert [[link.interface for link in host.links] for host in settings.nodes] == [
        ["eth0", "eth1"],
        ["ens0", "ens1"],
        ["eth0", "eth1"],
    ]
    assert [link.address for link in settings.nodes[1].links] == ["10.77.0.2/24", "fd77::2/64"]
    assert settings.nodes[1].addresses == ("10.77.0.2", "fd77::2")
    assert settings.head.addresses == ("10.77.0.254", "fd77::fe")
    macs = [link.mac for host in (settings.head, *settings.nodes) for link in host.links]
    assert len(set(macs)) == len(macs)
    assert json.loads(json.dumps(settings.plan()))["hosts"]["node1"]["links"][1][:2] == ["eth1", "fd77::1/64"]


def test_own_name_is_where_it_is_asked_to_be() -> None:
    settings = Settings(hosts=2)
    common = "127.0.0.1 localhost\n::1 localhost\n10.77.0.254 head\n"
    assert settings.hosts_file("node1") == f"{common}10.77.0.1 node1\n10.77.0.2 node2\n"
    settings.own_name_is_loopback = True
    assert settings.hosts_file("node1") == f"{common}127.0.1.1 node1\n10.77.0.2 node2\n"


@pytest.mark.parametrize(
    "wrong", [{"hosts": 0}, {"hosts": 254}, {"bridges": {"node5": "172.17.0.1/16"}}, {"name": "../x"}, {"name": ""}]
)
def test_impossible_clusters_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no cluster of"):
        Settings(**wrong)


def test_names_differ() -> None:
    assert Settings().name != Settings().name


def test_reason_against_a_cluster_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert state.unavailable() == "clusters are made of namespaces, which needs root"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "")
    assert state.unavailable() == "clusters need the package ethtool and iproute2 and util-linux"
    monkeypatch.setattr("sys.platform", "darwin")
    assert state.unavailable() == "clusters are made of Linux namespaces, and this is darwin"
