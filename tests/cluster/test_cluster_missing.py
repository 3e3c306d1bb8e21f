"""A rank of another host that stops, or ends without a word: the others say which, and the job ends in time."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
from situations import JOB_S, environment

from bench.cluster import state
from bench.cluster.cluster import Cluster
from harness import ROOT, Job, Mpi, ranks_of

WORK = ROOT / "tests" / "stress" / "work.py"
PLACEMENT = ("node1", "node1", "node2")
DEADLINE_S = 6.0
END_S = 4.0  # from the deadline to the end of mpirun on all hosts, on a busy machine

WORDS = {
    signal.SIGSTOP: r"rank 2 on node2 does not answer: it is stopped, or its host cannot be reached",
    signal.SIGKILL: r"rank 2 on node2 .*ended|Process name: \[\S+,2\]|PID \d+ RUNNING AT node2",
}


@pytest.mark.parametrize("number", WORDS, ids=lambda number: number.name)
def test_a_rank_of_another_host_is_named(cluster: Cluster, mpi: Mpi, number: signal.Signals) -> None:
    argv = [mpi.python, str(WORK), "small", "--backend", "hierarchical(mpi4py, gloo)"]
    argv += ["--timeout", str(DEADLINE_S), "--seconds", str(JOB_S)]
    env = environment(mpi, {"HPCCOMM_QUIET_S": "1"})
    with Job(cluster.command(mpi, argv, PLACEMENT), env=env) as job:
        while job.stdout.count(" begins") < len(PLACEMENT) and job.process.poll() is None:
            time.sleep(0.05)
        os.kill(ranks_of(state.processes(cluster.name))[2], number)
        struck = time.monotonic()
        result = job.wait(JOB_S)
    assert time.monotonic() - struck < DEADLINE_S + END_S, result
    assert result.returncode != 0, result
    assert not result.leftovers, result
    assert re.search(WORDS[number], result.stderr + result.stdout), result
