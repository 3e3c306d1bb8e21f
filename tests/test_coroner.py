"""Whom the coroner names, when it comes to look late."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hpccomm.watch import coroner


@contextmanager
def asleep(**pipes: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def start(name: str, launcher: int, *ranks: int) -> subprocess.Popen[bytes]:
    """Start a coroner that hears under a name, and give it time to look."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(f"\0{name}")
        own, watched = ears.fileno(), [f"{rank}:{pid}" for rank, pid in enumerate(ranks)]
        command = [sys.executable, "-I", "-S", coroner.__file__, str(own), "here", str(launcher), *watched]
        started = subprocess.Popen(command, pass_fds=[own])
    time.sleep(1.0)
    return started


@pytest.mark.parametrize(("told", "named"), [((0, coroner.ALL), False), ((0,), True)])
def test_ranks_that_were_ended_with_the_one_that_failed_are_not_named(told: tuple[int, ...], named: bool) -> None:
    name = f"hpccomm-test-{os.getpid()}"
    with asleep(stderr=subprocess.PIPE) as launcher, asleep() as first, asleep() as second:
        started = start(name, launcher.pid, first.pid, second.pid)
        started.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, started.pid, os.WSTOPPED | os.WNOWAIT)
        coroner.tell(name, *told)
        time.sleep(coroner.GRACE_S + 0.1)
        for process in (first, second):
            process.kill()
            process.wait()
        started.send_signal(signal.SIGCONT)
        assert started.wait(30) == 0
        launcher.kill()
        assert launcher.stderr is not None
        heard = launcher.stderr.read().decode()
    assert (f"rank 1 on here (process {second.pid}) ended without a word" in heard) is named
    assert "rank 0 on" not in heard


def test_a_rank_whose_end_is_seen_after_others_end_for_it_is_named() -> None:
    """Its connections break before it has ended: another rank says first that it ends all."""
    name = f"hpccomm-test-seen-{os.getpid()}"
    with asleep(stderr=subprocess.PIPE) as launcher, asleep() as first, asleep() as second:
        started = start(name, launcher.pid, first.pid, second.pid)
        coroner.tell(name, 0, coroner.ALL)
        second.kill()
        assert started.wait(30) == 0
        launcher.kill()
        assert launcher.stderr is not None
        heard = launcher.stderr.read().decode()
    assert f"rank 1 on here (process {second.pid}) ended without a word" in heard
