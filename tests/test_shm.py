"""Ranks of a host that read each other's memory, and ranks that may not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from harness import Mpi, run_job

PROGRAMS = Path(__file__).with_name("programs")
JOB_S = 120.0


@pytest.mark.parametrize("may_read", [True, False])
def test_results_are_right_where_memory_may_be_read_and_where_not(one_mpi: Mpi, *, may_read: bool) -> None:
    limits = [] if may_read else [sys.executable, str(PROGRAMS / "without_attach.py")]
    result = run_job(one_mpi, 3, [*limits, one_mpi.python, str(PROGRAMS / "host_memory.py")], timeout_s=JOB_S)
    assert result.returncode == 0, result
    assert ("may not read each other's memory" in result.stdout) is not may_read, result


def test_ranks_that_share_no_memory_are_told_so_once(one_mpi: Mpi, tmp_path: Path) -> None:
    apart = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    private = ["unshare", "--mount", "sh", "-c", apart, "sh"]
    if run_job(one_mpi, 1, [*private, "true"]).returncode:
        pytest.skip("this machine allows no mount namespaces")
    env = {"OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
    result = run_job(one_mpi, 2, [*private, one_mpi.python, str(PROGRAMS / "host_memory.py")], env=env)
    assert result.returncode, result
    assert result.stderr.count("share memory in /dev/shm with the other ranks of this host\n") == 1, result
