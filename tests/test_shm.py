"""Ranks of a host that share memory, and ranks that do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import Mpi, run_job

PROGRAM = str(Path(__file__).with_name("programs") / "host_memory.py")
JOB_S = 120.0


def test_results_are_right_in_many_rounds(one_mpi: Mpi) -> None:
    result = run_job(one_mpi, 3, [one_mpi.python, PROGRAM], timeout_s=JOB_S)
    assert result.returncode == 0, result


def test_ranks_that_share_no_memory_are_told_so_once(one_mpi: Mpi) -> None:
    apart = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    private = ["unshare", "--mount", "sh", "-c", apart, "sh"]
    if run_job(one_mpi, 1, [*private, "true"]).returncode:
        pytest.skip("this machine allows no mount namespaces")
    env = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
    result = run_job(one_mpi, 2, [*private, one_mpi.python, PROGRAM], env=env)
    assert result.returncode, result
    assert result.stderr.count("share memory in /dev/shm with the other ranks of this host\n") == 1, result
