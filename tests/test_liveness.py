"""Processes of this host: running, stopped, ended, gone, and one that has got the number of another."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpccomm.liveness import process_state, start_time, this_process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process whose name looks like the end of a name and a state."""
    program = tmp_path / "a) T (b"
    shutil.copy(shutil.which("sleep") or "", program)
    with subprocess.Popen([program, "60"]) as process:
        yield process
        process.kill()


def becomes(state: str, process: Callable[[], str]) -> bool:
    end = time.monotonic() + 10
    while process() != state and time.monotonic() < end:
        time.sleep(0.01)
    return process() == state


def test_life_of_a_process(sleeper: subprocess.Popen[bytes]) -> None:
    started = start_time(sleeper.pid)

    def state() -> str:
        return process_state(sleeper.pid, started)

    assert state() == "running"
    sleeper.send_signal(signal.SIGSTOP)
    assert becomes("stopped", state)
    sleeper.send_signal(signal.SIGCONT)
    assert becomes("running", state)
    sleeper.kill()
    assert becomes("dead", state)  # not waited for, so it is a zombie
    sleeper.wait()
    assert state() == "dead"
    assert start_time(sleeper.pid) == 0


def test_process_with_the_number_of_another_is_not_the_other() -> None:
    assert process_state(os.getpid(), start_time(os.getpid()) - 1) == "dead"


def test_this_process_runs_beside_its_parent() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert process_state(me.pid, me.start_time) == "running"
    assert start_time(os.getppid()) <= me.start_time
    assert me == this_process()
