"""The doctor on several hosts: it says that all is well, or what is wrong, with the host that has it, and once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from situations import JOB_S, environment

from bench.cluster.cluster import Cluster
from bench.cluster.slurm import Slurm
from harness import Job, Mpi

DOCKER = "172.17.0.1/16"
OTHER_TORCH = """
import sys
from importlib.machinery import PathFinder


class Finder:
    def find_spec(self, name, path=None, target=None):
        if name != "torch.version":
            return None
        spec = PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.__version__ = "2.13.0"

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, Finder())
"""


def doctor(mpi: Mpi, *options: str) -> list[str]:
    return [mpi.python, "-m", "hpccomm.doctor", *options]


def test_all_is_well_on_four_hosts(cluster: Cluster, one_mpi: Mpi) -> None:
    command = cluster.command(one_mpi, doctor(one_mpi), cluster.names)
    result = Job(command, env=environment(one_mpi, {})).wait(JOB_S)
    assert result.returncode == 0, result
    assert not result.leftovers, result
    lines = result.stdout.splitlines()
    assert len(lines) <= 100, result
    assert max(map(len, lines)) <= 80, result
    assert lines[0].startswith("4 ranks on 4 nodes"), result
    assert lines[-1].startswith("all well"), result
    for number in range(1, 5):
        assert f"10.77.0.{number}/24 (chosen) (node{number})" in result.stdout, result
    assert "differs between hosts" not in result.stdout, result


def test_faults_of_hosts_are_told_together(one_mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_TORCH)
    on_one_host = f'test "$(hostname)" = node2 && export PYTHONPATH="{tmp_path}:$PYTHONPATH"; exec "$@"'
    command = ["sh", "-c", on_one_host, "sh", *doctor(one_mpi, "--json")]
    bridges = {"node1": DOCKER, "node2": DOCKER}
    with Cluster(hosts=2, bridges=bridges, own_name_is_loopback=True, shm="64m") as made:
        argv = made.command(one_mpi, command, ("node1", "node1", "node2", "node2"))
        result = Job(argv, env=environment(one_mpi, {})).wait(JOB_S)
    assert result.returncode == 2, result
    assert not result.leftovers, result
    told = json.loads(result.stdout)
    found = {one["check"]: one for one in told["findings"] if one["severity"] != "note"}
    assert set(found) == {"interfaces", "names", "memory", "software"}, result
    assert found["interfaces"]["what"] == "172.17.0.1 is an address of 2 hosts: node1 (docker0), node2 (docker0)"
    assert found["interfaces"]["setting"] == "export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24"
    assert found["names"]["what"] == "the own name resolves to loopback on node1, node2"
    assert found["memory"]["what"] == "/dev/shm is small on node1, node2: 64 MiB free of 64 MiB"
    assert found["software"]["what"] == "hosts have different versions of torch"
    assert "2.13.0 on node2" in found["software"]["found"]
    assert told["trial"]["times"], "the ranks come together all the same"


def test_network_that_no_host_has_is_told(with_slurm: Slurm, one_mpi: Mpi) -> None:
    if not one_mpi.is_open_mpi:
        pytest.skip("it is a setting of Open MPI")
    command = with_slurm.command(["srun", "--nodes=2", "--mpi=pmix", *doctor(one_mpi)])
    result = Job(command, env=environment(one_mpi, {"OMPI_MCA_btl_tcp_if_include": "no7"})).wait(JOB_S)
    assert result.returncode == 2, result
    assert not result.leftovers, result
    assert "ERROR  OMPI_MCA_btl_tcp_if_include=no7 names no interface of node1, node2" in result.stdout, result
    assert "set:   export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24" in result.stdout, result
    assert result.stdout.count("not well: 1 error\n") == 1, result


def test_plugin_that_joins_nobody_is_told_once(with_slurm: Slurm, one_mpi: Mpi) -> None:
    command = with_slurm.command(["srun", "--nodes=2", "--mpi=none", *doctor(one_mpi)])
    result = Job(command, env=environment(one_mpi, {})).wait(JOB_S)
    assert result.returncode == 2, result
    assert not result.leftovers, result
    assert result.stdout.count("ERROR") == 1, result
    assert "srun --mpi=pmix" in result.stdout, result
    assert "only rank 0 on node1 is heard" in result.stdout, result
    (slurm,) = (line for line in result.stdout.splitlines() if line.startswith("Slurm  "))
    assert {"none", "pmi2", "pmix"} <= set(slurm.partition("--mpi=")[2].split("|")), slurm
    assert result.stdout.count("not well: 1 error\n") == 1, result
