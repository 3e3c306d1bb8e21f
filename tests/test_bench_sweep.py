"""Settings that a sweep compares, and its child jobs; with Gloo, as NCCL needs GPUs."""

from __future__ import annotations

import pytest
import torch

from harness import ROOT, Job, Mpi
from hpccomm.bench.arguments import parse
from hpccomm.bench.settings import settings
from hpccomm.errors import OptionError


@pytest.mark.parametrize(
    ("texts", "variables"),
    [
        ([], []),
        (["nccl.algo=ring,tree"], [{"NCCL_ALGO": None}, {"NCCL_ALGO": "allreduce:Tree"}]),
        (["nccl.ib_disable=1"], [{"NCCL_IB_DISABLE": "1"}]),
        (
            ["nccl.buffsize=1M,4M", "nccl.nthreads=64,512"],
            [
                {"NCCL_BUFFSIZE": str(size << 20), "NCCL_NTHREADS": str(threads)}
                for size in (1, 4)
                for threads in (64, 512)
            ],
        ),
    ],
)
def test_all_combinations_are_compared(texts: list[str], variables: list[dict[str, str | None]]) -> None:
    found = [setting.options.environment for setting in settings(texts)]
    assert [one.keys() for one in found] == [one.keys() for one in variables]
    for one, wanted in zip(found, variables, strict=True):
        assert all(value is None or one[name] == value for name, value in wanted.items())


@pytest.mark.parametrize(
    "text", ("nccl.algo", "algo=ring", "nccl.rings=1", "nccl.algo=rings", "nccl.buffsize=1.5B", "nccl.ib_disable=yes")
)
def test_what_is_no_setting_is_refused_before_anything_starts(text: str) -> None:
    with pytest.raises(OptionError):
        parse(["--sweep", text])
    with pytest.raises(OptionError):
        parse(["--sweep", "nccl.algo=ring", "nccl.algo=tree"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="NCCL runs here")
def test_a_child_job_measures_beside_the_ranks_and_nccl_is_refused_without_gpus(one_mpi: Mpi) -> None:
    command = one_mpi.command(2, [one_mpi.python, str(ROOT / "tests" / "programs" / "sweeps.py")])
    with Job(command, env=one_mpi.environment()) as job:
        result = job.wait(200)
    assert result.returncode == 0, result
    assert "measured 2 torchrun [4, 16, 64]" in result.stdout
    assert "wrong [0, 0, 0]" in result.stdout
    assert "failed rank 0: ended with status 1: " in result.stdout
    assert "HPCCOMM_QUIET_S" in result.stdout
    assert result.stdout.count("status 2") == 2
    assert result.stderr.count("so that NCCL cannot run") == 1
