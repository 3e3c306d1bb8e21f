"""A warning before the end of a job: one rank has it, all ranks act on it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import pytest
import torch.distributed as dist
from worlds import COMM, world

from hpccomm.errors import JobError
from hpccomm.training.preemption import Preemption

pytestmark = pytest.mark.mpi

RANK, SIZE = COMM.rank, COMM.size


@pytest.fixture
def preemption() -> Iterator[Preemption]:
    before = signal.getsignal(signal.SIGUSR1)
    yield Preemption()
    signal.sigtimedwait([signal.SIGUSR1], 0)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    signal.signal(signal.SIGUSR1, before)


def warn(preemption: Preemption) -> None:
    """Warn this process, and wait until it knows: a thread that stood before may get the signal, and pass it on."""
    os.kill(os.getpid(), signal.SIGUSR1)
    end = time.monotonic() + 5
    while not preemption.warned and time.monotonic() < end:
        time.sleep(0.01)


def test_signals_are_seen_held_back_or_not(preemption: Preemption) -> None:
    assert not preemption.warned
    warn(preemption)
    assert preemption.warned
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
    assert preemption.warned


@pytest.mark.parametrize("backend", ["mpi4py", "gloo"])
def test_all_ranks_learn_of_the_warning_of_one(preemption: Preemption, backend: str) -> None:
    with world("A" * SIZE, backend):
        assert not preemption.agreed()
        if RANK == SIZE - 1:
            warn(preemption)
        assert preemption.agreed()
        assert preemption.warned == (RANK == SIZE - 1)


def test_groups_agree_for_themselves(preemption: Preemption) -> None:
    with world("A" * SIZE, "mpi4py"):
        groups = [dist.new_group([rank], backend="hpccomm") for rank in range(SIZE)]
        if RANK == 0:
            warn(preemption)
        assert preemption.agreed(groups[RANK]) == (RANK == 0)


def test_what_cannot_be_requeued_is_an_error_on_all_ranks(
    preemption: Preemption, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with world("A" * SIZE, "mpi4py"):
        with pytest.raises(JobError, match="no SLURM_JOB_ID"):
            preemption.requeue()
        monkeypatch.setenv("SLURM_JOB_ID", "1")
        monkeypatch.setenv("PATH", "/nonexistent")
        with pytest.raises(JobError, match="scontrol: "):
            preemption.requeue(dist.new_group(list(range(SIZE)), backend="hpccomm"))
