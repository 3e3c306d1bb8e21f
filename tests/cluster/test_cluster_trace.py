"""A trace of ranks on several hosts whose clocks are wrong."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest
from situations import JOB_S, environment

from bench.cluster.cluster import Cluster
from harness import ROOT, Job, Mpi
from traces import sent, spans, valid

PROGRAM = ROOT / "tests" / "programs" / "traced.py"
CLOCKS = ["0.5,50e-6", "-0.5,-50e-6", "-1,50e-6", "1,0"]
"""Offset in seconds and drift of each host's clock."""

CALLS, BYTES = 60, 3200
RECOVERED_US = 50


def test_ranks_on_four_hosts_are_traced_by_one_clock(cluster: Cluster, one_mpi: Mpi, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    argv = [one_mpi.python, str(PROGRAM), "hierarchical(mpi4py, ring(mpi4py))", *CLOCKS]
    hosts = [name for name in cluster.names for _ in range(2)]
    env = environment(one_mpi, {"HPCCOMM_TRACE": str(path)})
    with Job(cluster.command(one_mpi, argv, hosts), env=env) as job:
        result = job.wait(JOB_S)
    assert result.returncode == 0, result
    data = valid(path)
    about = data["otherData"]["hpccomm"]
    assert about["hosts"] == hosts
    for told in map(json.loads, filter(lambda line: line.startswith("{"), result.stdout.splitlines())):
        marks = [about["began_s"] + one["ts"] / 1e6 for one in spans(data, told["rank"], "")]
        errors = [(found - true) * 1e6 for found, true in zip(marks, told["marked"], strict=True)]
        for half in (errors[: len(errors) // 2], errors[len(errors) // 2 :]):
            assert statistics.median(half) == pytest.approx(0, abs=RECOVERED_US), (told["rank"], about["clocks"])
    across = {(a, b): many for (a, b), many in sent(data).items() if hosts[a] != hosts[b]}
    assert across == {(rank, (rank + 2) % 8): [CALLS * 2 * 3 * BYTES // 2 // 4, 0] for rank in range(8)}
