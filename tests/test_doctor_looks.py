"""How the doctor looks: bounded in time, by the ranks whose matter it is, until the first signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpccomm.doctor import examine
from hpccomm.doctor.checks import process, tools
from hpccomm.doctor.look import Call, look, start
from launch_starts import STARTS, step


def test_what_hangs_or_fails_is_not_waited_for() -> None:
    begun = time.monotonic()
    assert Call(lambda: time.sleep(1000)).wait(0.05) == (None, "it hangs")
    assert time.monotonic() - begun < 10
    assert Call(lambda: 1 // 0).wait(10) == (None, "ZeroDivisionError: integer division or modulo by zero")
    assert Call(lambda: 5).wait(10) == (5, "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "TOOL_S", 0.05)
        with pytest.raises(subprocess.TimeoutExpired):
            tools.ask([sys.executable, "-c", "import time; time.sleep(1000)"])


def test_networks_that_cannot_be_seen_hold_no_trial_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examine, "for_trial", lambda _: 1 // 0)
    assert examine._given({"A": "b"}) == ({"A": "b"}, ())


def test_each_rank_makes_the_checks_that_are_its_own() -> None:
    def checks(environ: dict[str, str]) -> set[str]:
        seen = look(environ, start(environ), 60)
        return {*seen.facts, *seen.failed}

    first, second = step(0, 4, 0, "2(x2)"), step(1, 4, 1, "2(x2)")
    of_host = {"software", "gpus", "slurm", "names", "interfaces", "limits", "memory", "sessions", "attach", "process"}
    assert checks(first) == {"cores", "ports", *of_host}
    assert checks(second) == {"cores"}
    assert checks(step(2, 4, 0, "2(x2)", 1)) == {"cores", *of_host}


@pytest.mark.parametrize("name", STARTS)
def test_start_is_read_whatever_it_says(name: str) -> None:
    environ, launcher, (rank, size, local_rank, _) = STARTS[name]
    begun = start(environ)
    assert begun.launcher.name in (launcher, "a Slurm step")  # which torchrun-style variables overrule
    if begun.launcher.name == launcher:
        assert (begun.rank, begun.local_rank) == (rank, local_rank)
        assert begun.size == (size or 1)


def test_only_the_first_signal_ends_the_listening() -> None:
    both = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.getsignal(number) for number in both}
    try:
        with examine._taking_signals():
            with pytest.raises(examine._EndedError, match="by SIGTERM"):
                signal.raise_signal(signal.SIGTERM)
            for number in both:
                signal.raise_signal(number)
        for number in both:  # while the report is written
            signal.raise_signal(number)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_home_and_working_directory_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert process.look({"HOME": ""}) == {"has_home": True, "has_folder": True}
    tmp_path.rmdir()
    assert process.look({}) == {"has_home": False, "has_folder": False}
