"""The checks of tests/mpi on GPUs' tensors: by NCCL, by MPI with a GPU's addresses, staged, in hierarchies; and draws.

Skipped where torch sees no GPU. With fewer GPUs than ranks these share them, as NCCL from 2.30 on lets them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from harness import Mpi
from hpccomm.training.randomness import set_states, states
from inner_pytest import run_pytest

CHECKS = Path(__file__).parent.with_name("mpi") / "test_collectives.py"
JOB_S = 1200.0

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


@pytest.mark.parametrize("aware", ("0", ""), ids=("staged", "as MPI says"))
@pytest.mark.parametrize("np", (1, 2, 4))
def test_collectives(mpi: Mpi, np: int, aware: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOMM_TEST_DEVICE", "cuda")
    monkeypatch.setenv("HPCCOMM_TEST_CUDA_AWARE", aware)
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    reports = run_pytest(mpi, np, [CHECKS], folder=tmp_path, timeout_s=JOB_S)
    if reports.problems:
        pytest.fail("\n".join([f"{mpi.name}, {np} ranks:", *reports.problems, str(reports)]), pytrace=False)


def test_a_gpus_random_numbers_go_on_from_where_their_states_were_taken() -> None:
    torch.rand(3, device="cuda")
    taken = states()
    drawn = [torch.rand(3, device="cuda").tolist() for _ in range(2)]
    assert drawn[0] != drawn[1]
    set_states(taken)
    assert torch.rand(3, device="cuda").tolist() == drawn[0]
