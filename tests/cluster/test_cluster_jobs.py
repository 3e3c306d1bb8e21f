"""mpirun over several hosts: all backends are right, the topology is the real one, no address is a wrong one."""

from __future__ import annotations

import pytest
from situations import JOB_S, Situation, argv, check, environment

from bench.cluster.cluster import Cluster
from harness import Job, Mpi

DOCKER = "172.17.0.1/16"
SITUATIONS = {
    "by slot": Situation(
        "112234", "6 ranks on 4 nodes (2 + 2 + 1 + 1), by slot: node1 0-1, node2 2-3, node3 4, node4 5"
    ),
    "first rank on the last of unlike hosts": Situation(
        "412",
        "3 ranks on 3 nodes (1 + 1 + 1), by slot: node4 0, node1 1, node2 2",
        settings={"interfaces": ("eth", "ens", "ib", "enp1s"), "own_name_is_loopback": True},
    ),
    "container bridges": Situation(
        "123",
        "3 ranks on 3 nodes (1 + 1 + 1), by slot: node1 0, node2 1, node3 2",
        settings={"hosts": 3, "bridges": {"node1": DOCKER, "node2": DOCKER}},
        env={"OMPI_MCA_btl_tcp_if_include": "10.77.0.0/24"},  # else Open MPI's own traffic takes the bridges, and hangs
    ),
    "network by subnet": Situation(
        "112",
        "3 ranks on 2 nodes (2 + 1), by slot: node1 0-1, node2 2",
        settings={"hosts": 2, "subnets": ("10.77.0.0/24", "10.78.0.0/24")},
        env={"HPCCOMM_INTERFACE": "10.78.0.0/16"},
        network=1,
    ),
    "IPv6": Situation(
        "122",
        "3 ranks on 2 nodes (1 + 2), by slot: node1 0, node2 1-2",
        settings={"hosts": 2, "subnets": ("fd77::/64",)},
        open_mpi_only="Hydra knows IPv4 only",
    ),
}
# other places of ranks, which the MPIs do not tell apart and hpccomm finds in the same way under each
ON_ONE_MPI = {
    "by node": Situation("1212", "4 ranks on 2 nodes (2 + 2), by node: node1 0,2, node2 1,3"),
    "uneven": Situation("1112", "4 ranks on 2 nodes (3 + 1), by slot: node1 0-2, node2 3"),
}


def assert_right(mpi: Mpi, situation: Situation) -> None:
    """Run the program that checks all backends."""
    with Cluster(**situation.settings) as cluster:
        command = cluster.command(mpi, argv(mpi), situation.placement)
        result = Job(command, env=environment(mpi, situation.env)).wait(JOB_S)
        check(
            result,
            cluster,
            placement=situation.placement,
            topology=situation.topology,
            network=situation.network,
        )


@pytest.mark.parametrize("name", SITUATIONS)
def test_all_backends(mpi: Mpi, name: str) -> None:
    situation = SITUATIONS[name]
    if situation.open_mpi_only and not mpi.is_open_mpi:
        pytest.skip(situation.open_mpi_only)
    assert_right(mpi, situation)


@pytest.mark.parametrize("name", ON_ONE_MPI)
def test_all_backends_under_one_mpi(one_mpi: Mpi, name: str) -> None:
    assert_right(one_mpi, ON_ONE_MPI[name])
