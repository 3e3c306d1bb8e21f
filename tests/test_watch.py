"""The watchdog's parts: descriptors of any number, closed ones, and signals after another's wake-up descriptor."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time

import pytest

from hpccomm.watch.channel import Channel, await_any
from hpccomm.watch.flight import Flight
from hpccomm.watch.held import HeldCalls
from hpccomm.watch.losses import Losses

_AFTER_ASYNCIO = """
import asyncio, os, signal, time
from hpccomm.watch.signals import SignalPipe
pipe = SignalPipe([signal.SIGTERM])
async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: None)
asyncio.run(main())
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(0.1)
assert pipe.read() == [signal.SIGTERM]
"""


def test_a_signal_arrives_after_asyncio_has_let_go_of_the_wakeup_descriptor() -> None:
    subprocess.run([sys.executable, "-c", _AFTER_ASYNCIO], check=True, timeout=60)


def test_serving_a_closed_channel_ends() -> None:
    channel = Channel("127.0.0.1", "token")
    channel.close()
    serving = threading.Thread(target=channel.serve, args=(lambda _: {}, lambda _: None), daemon=True)
    serving.start()
    serving.join(5)
    assert not serving.is_alive()


def test_descriptors_past_1024_are_awaited() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    end, other = os.pipe()
    try:
        os.dup2(end, 2000)
        os.write(other, b"x")
        await_any([2000, -1], 1.0)
        assert os.read(2000, 1) == b"x"
    finally:
        for descriptor in (end, other, 2000):
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_is_begun_after_a_loss_is_ended_too() -> None:
    ended: list[str] = []
    losses = Losses(
        Channel("127.0.0.1", "token"),
        Flight(),
        0,
        describe=str,
        failed=lambda: [1],
        revoke=lambda: ended.append("all that stands"),
    )
    for _ in range(3):
        seen = len(ended)
        assert losses.found() == "lost [1]"
        assert len(ended) > seen
    losses.close()
    seen = len(ended)
    losses.look()
    assert len(ended) == seen


def test_a_call_inside_mpi_is_overdue_by_the_time_that_this_process_has_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    held = HeldCalls()
    with held.over("make channels", 3.0, lambda: "rank 1 (stopped)"):
        now += 60.0  # stopped
        assert held.overdue() is None
        for _ in range(5):
            now += 0.5
            assert held.overdue() is None  # 3.5 s, the deadline and half a second
        now += 0.5
        call = held.overdue()
        assert call is not None
        assert "waited 3 s inside MPI for rank 1 (stopped)" in str(call.error(""))
    now += 0.5
    assert held.overdue() is None


def test_time_before_a_call_inside_mpi_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    held = HeldCalls()
    now += 10.0  # in which nobody looked
    with held.over("make channels", 0.2, lambda: "rank 1"):
        now += 0.1
        assert held.overdue() is None


@pytest.mark.parametrize("closed", [False, True])
def test_a_process_that_is_ended_last_keeps_its_status(closed: bool) -> None:
    program = "print('done'); from hpccomm.watch.ending import Ending; Ending(-1.0, lambda: 3).walk(())"
    command = f'exec "{sys.executable}" -c "{program}"{" >&-" if closed else ""}'
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout) == (3, "" if closed else "done\n")
