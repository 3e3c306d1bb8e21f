"""The training template inside ranks: a run that is warned and goes on ends with the bits of one that is not."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from mpi4py import MPI
from worlds import COMM, FEW_RANKS

import hpccomm
from harness import ROOT
from hpccomm.errors import OptionError
from states import state

sys.path.insert(0, str(ROOT / "jobs"))

import train

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]
one_mpi_is_enough = pytest.mark.skipif(
    COMM.size > 2 and MPI.get_vendor()[0] != "Open MPI", reason="ranks of this MPI hold the cores that they wait on"
)

RANK, SIZE = COMM.rank, COMM.size


class Warned(train.Preemption):
    """The last rank is warned in one of its steps; no Slurm is there to be asked for more."""

    def __init__(self, at: int = 0) -> None:
        super().__init__()
        self.at, self.steps, self.requeued = at, 0, False

    def agreed(self, group: dist.ProcessGroup | None = None) -> bool:
        self.steps += 1
        if self.steps == self.at and RANK == SIZE - 1:
            os.kill(os.getpid(), signal.SIGUSR1)
        return super().agreed(group)

    def requeue(self, group: dist.ProcessGroup | None = None) -> None:
        self.requeued = True


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGUSR1)
    yield
    signal.sigtimedwait([signal.SIGUSR1], 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    signal.signal(signal.SIGUSR1, before)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str, warned_at: int = 0) -> bool:
    """Train; tell whether a warning has ended it."""
    preemption = Warned(warned_at)
    monkeypatch.setattr(train, "preemption", preemption)
    files = ["--checkpoint", str(folder / "checkpoint.pt"), "--json", str(folder / "result.json")]
    train.main([*files, "--epochs", "2", "--batch", "64", *options])
    signal.sigtimedwait([signal.SIGUSR1], 0)
    return preemption.requeued


OPTIONS = {
    2: [
        ("--precision", "float16", "--hook", "bfloat16", "--accumulate", "2"),
        ("--precision", "bfloat16", "--hook", "adasum"),
    ],
    3: [("--backend", "ring(mpi4py)")],  # what three ranks add up depends on the place in a bucket
}.get(SIZE, [])


@one_mpi_is_enough
@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_it_goes_on_to_the_same_bits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: tuple[str, ...]) -> None:
    folders = [Path(COMM.bcast(tmp_path)) / name for name in ("straight", "warned")]
    if RANK == 0:
        for folder in folders:
            folder.mkdir()
    COMM.Barrier()
    assert not run(monkeypatch, folders[0], *options)
    for step in (2, 3)[: 4 - SIZE]:  # on three ranks once is enough
        assert run(monkeypatch, folders[1], *options, warned_at=step)
    assert not (folders[1] / "result.json").exists()
    assert not run(monkeypatch, folders[1], *options)
    straight, warned = (state(folder / "checkpoint.pt") for folder in folders)
    assert warned == straight
    whole, again = (json.loads((folder / "result.json").read_text()) for folder in folders)
    assert whole["complete"] is again["complete"] is True
    assert whole["environment"]["ranks"] == SIZE
    judged = [[(one["epoch"], one["accuracy"], one["loss"]) for one in of["results"]] for of in (whole, again)]
    assert judged[0] == judged[1]
    assert [epoch for epoch, _, _ in judged[0]] == [0, 1]


@one_mpi_is_enough
def test_a_run_does_not_go_on_otherwise_than_it_began(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = Path(COMM.bcast(tmp_path))
    assert run(monkeypatch, folder, warned_at=1)
    given = ["--checkpoint", str(folder / "checkpoint.pt"), "--seed", "1", "--lr", "0.01", "--batch", "32"]
    with hpccomm.init() as world, train.progress_bar(world) as bar:
        training = train.Training(world, train.parse(given))
        with pytest.raises(OptionError) as refused:
            train.train(training, bar)
    assert refused.value.asked.endswith("checkpoint.pt with --seed 1, --lr 0.01, --batch 32")
    assert refused.value.found == "it is of a run with --seed 0, --lr 0.003, --batch 64"
    assert len(set(COMM.allgather(str(refused.value)))) == 1
    assert run(monkeypatch, folder, "--epochs", "3", "--backend", "gloo", warned_at=1)


@one_mpi_is_enough
def test_without_a_checkpoint_a_warning_is_no_reason_to_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Requeued, it would begin anew, for ever."""
    file = Path(COMM.bcast(tmp_path)) / "result.json"
    preemption = Warned()
    monkeypatch.setattr(train, "preemption", preemption)
    os.kill(os.getpid(), signal.SIGUSR1)
    train.main(["--json", str(file), "--epochs", "1", "--batch", "256"])
    COMM.Barrier()
    assert json.loads(file.read_text())["complete"]
    assert not preemption.requeued
