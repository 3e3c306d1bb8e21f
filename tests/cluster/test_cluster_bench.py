"""The benchmark finds the host whose link is slow, in figures and in its report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from situations import JOB_S, environment

from bench.cluster.cluster import Cluster
from harness import Job, Mpi

RATE, QUARTER = "100mbit", "25mbit"
MESSAGE = "512K"  # passes in less than the 50 ms that a link queues, so that the healthy ones lose no packet
SICK = "node3"
NAME = f"host {SICK}, sending to and receiving from other hosts"


def test_a_host_with_a_quarter_of_the_rate_is_the_one_that_is_slow(one_mpi: Mpi, tmp_path: Path) -> None:
    argv = [one_mpi.python, "-m", "hpccomm.bench", "--pairs", MESSAGE, "-n", "9", "--report", str(tmp_path)]
    with Cluster(hosts=4, rate=RATE) as cluster:
        cluster.shape(SICK, QUARTER)
        with Job(cluster.command(one_mpi, argv, cluster.names), env=environment(one_mpi, {})) as job:
            result = job.wait(JOB_S)
    assert result.returncode == 0, result
    (matrix,) = json.loads((tmp_path / "results.json").read_text())["pairs"]
    rates = [one for one in matrix["slow"] if one["measure"] == "bandwidth"]  # waiting for a core is in all latencies
    assert [one["name"] for one in rates if one["name"].startswith("host")] == [NAME]
    assert rates[0]["name"] == NAME, "the slowest of all comes first"
    assert rates[0]["times"] == pytest.approx(4, rel=0.25)
    assert f"Slow over mpi4py: {NAME}" in (tmp_path / "index.html").read_text()
