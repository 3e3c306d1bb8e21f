"""The training template under mpirun: what it reaches, in which time, and what it leaves."""

from __future__ import annotations

import json
import resource
from pathlib import Path

from harness import ROOT, Mpi, run_job
from hpccomm.jobs.results import verify

LIMIT_S = 60.0  # of both ranks' cores, so that other programs on the machine do not count
JOB_S = 200.0


def cores_s() -> float:
    """Give the time that cores have spent on processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_two_ranks_learn_digits_within_a_minute(one_mpi: Mpi, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    argv = [one_mpi.python, str(ROOT / "jobs" / "train.py"), "--json", str(file)]
    before = cores_s()
    result = run_job(one_mpi, 2, argv, timeout_s=JOB_S)
    assert result.returncode == 0, result
    assert cores_s() - before <= LIMIT_S
    assert verify(file, ranks=2) == 8
    last = json.loads(file.read_text())["results"][-1]
    assert last["accuracy"] >= 0.95, result
    assert 0 < last["communication_share"] < 1
    lines = [line for line in result.stdout.splitlines() if line.startswith("epoch")]
    assert len(lines) == 8
    assert lines[-1].startswith(f"epoch 7: test accuracy {last['accuracy']:.1%}")
