"""Whether MPI takes a GPU's memory: what is made of every end of the probe, and that it is asked once."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hpccomm.backends import cuda_aware
from hpccomm.backends.cuda_aware import Verdict, ask, verdict
from hpccomm.errors import OptionError
from hpccomm.launch.stripped import stripped


def program(text: str) -> list[str]:
    return [sys.executable, "-c", text]


@pytest.mark.parametrize(
    ("text", "answer", "reason"),
    [
        ("print('begun'); print('yes')", "yes", "came through every call"),
        ("print('noise'); print('no: MPI_Allreduce gives 0 for 7')", "no", "MPI_Allreduce gives 0"),
        ("print('unknown: no GPU')", "unknown", "no GPU"),
        ("import os; os.kill(os.getpid(), 11)", "no", "SIGSEGV"),
        ("import os; print('begun', flush=True); os.kill(os.getpid(), 7)", "no", "SIGBUS"),
        ("print('begun'); raise SystemExit('MPI_ERR_BUFFER')", "no", "status 1: MPI_ERR_BUFFER"),
        ("raise SystemExit('no network')", "unknown", "status 1: no network"),
        ("import os; os.kill(os.getpid(), 9)", "unknown", "status -9"),
        ("import time; time.sleep(60)", "unknown", "did not end within 1 s"),
    ],
)
def test_every_end_of_the_probe_is_an_answer(text: str, answer: str, reason: str) -> None:
    found = ask(program(text), os.environ, timeout_s=1 if "sleep" in text else 20)
    assert found.answer == answer
    assert reason in found.reason


def test_a_probe_that_cannot_start_is_no_answer() -> None:
    assert ask(["/no/such/python"], os.environ).answer == "unknown"


def test_the_user_has_the_last_word() -> None:
    for told, answer in (("1", "yes"), ("0", "no")):
        assert verdict("any MPI", {"HPCCOMM_CUDA_AWARE": told}, device="cuda:0") == Verdict(
            answer, f"HPCCOMM_CUDA_AWARE={told}"
        )
    with pytest.raises(OptionError, match="neither 0 nor 1"):
        verdict("any MPI", {"HPCCOMM_CUDA_AWARE": "yes"}, device="cuda:0")


def test_a_library_is_asked_once_a_host_and_again_where_nothing_was_learnt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Verdict("no", "it crashes"), Verdict("unknown", "no GPU"), Verdict("yes", "it works")]
    monkeypatch.setattr(cuda_aware, "ask", lambda *arguments, **options: answers.pop(0))
    monkeypatch.setattr(cuda_aware, "_unknown", {})
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert [verdict("A 1", environ, device="cuda:0").answer for _ in range(2)] == ["no", "no"]
    assert [verdict("B 1", environ, device="cuda:0").answer for _ in range(2)] == ["unknown", "unknown"]
    monkeypatch.setattr(cuda_aware, "_unknown", {})  # as in the next process
    assert verdict("A 1", environ, device="cuda:0").reason == "it crashes"
    assert verdict("B 1", environ, device="cuda:0").answer == "yes"
    (tmp_path / "hpccomm" / "cuda-aware.json").write_text("{not JSON")
    answers.append(Verdict("yes", "asked anew"))
    assert verdict("A 1", environ, device="cuda:0").reason == "asked anew"


def test_a_child_gets_no_variable_of_the_launcher() -> None:
    kept = {
        "PATH": "/bin",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_MCA_pml": "ucx",
        "OMPI_MCA_btl_tcp_if_include": "eth0",
        "OMPI_MCA_opal_cuda_support": "1",
        "I_MPI_OFFLOAD": "1",
        "SLURM_JOB_ID": "7",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    taken = [
        *("OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid", "PMIX_RANK", "PMIX_NAMESPACE", "PRTE_LAUNCHED"),
        *("PMI_RANK", "PMI_FD", "MPI_LOCALRANKID", "HYDI_CONTROL_FD", "HYDRA_RMK", "I_MPI_HYDRA_TOPOLIB"),
        "HPCCOMM_RANK_PID",
    ]
    assert stripped({**kept, **dict.fromkeys(taken, "1")}) == kept
