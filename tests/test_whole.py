"""Files that are there whole or not at all, and what a killed process leaves of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness import ROOT
from hpccomm.whole import ABANDONED_S, remove_left_over, whole, write_whole

PROGRAM = str(Path(__file__).with_name("programs") / "half_written.py")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "result.json"


@pytest.fixture
def writer(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a process that has written half of the file."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, PROGRAM, path], stdout=subprocess.PIPE, env=environ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        yield process
        process.kill()


def test_a_file_that_fails_leaves_what_was_there(path: Path) -> None:
    write_whole(path, "old")
    with pytest.raises(ZeroDivisionError), whole(path) as beside:
        beside.write_text(str(1 // 0))
    assert path.read_text() == "old"
    with whole(path) as beside:
        beside.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [*path.parent.iterdir()] == [path]


def test_what_a_killed_process_left_is_deleted_and_nothing_else(path: Path, writer: subprocess.Popen[bytes]) -> None:
    (half,) = path.parent.iterdir()
    assert half.read_text() == "half"
    kept = [path, path.with_name(f"{half.name}.old"), path.with_name(half.name.replace("result", "resu1t"))]
    kept.append(path.with_name(f".{path.name}.swp"))
    for file in kept:
        file.touch()
    remove_left_over(path)
    writer.send_signal(signal.SIGSTOP)
    remove_left_over(path)
    assert half.exists()
    writer.kill()
    writer.wait()
    remove_left_over(path.with_name("other.json"))
    assert half.exists()
    remove_left_over(path)
    assert {*path.parent.iterdir()} == {*kept}


def test_the_number_of_a_process_that_is_gone_protects_nothing(path: Path) -> None:
    with whole(path) as beside:
        beside.touch()
        number, started, space = beside.name.removeprefix(".result.json.").split("-")
        earlier = path.with_name(f".result.json.{number}-{int(started) - 1}-{space}")
        earlier.touch()
        remove_left_over(path)
        assert [*path.parent.iterdir()] == [beside]


@pytest.mark.parametrize(("age_s", "stays"), [(ABANDONED_S / 2, True), (2 * ABANDONED_S, False)])
def test_of_a_process_of_another_host_what_has_long_not_been_written_to_is_left(
    path: Path, age_s: float, stays: bool
) -> None:
    file = path.with_name(f".result.json.{os.getpid()}-1-{'0' * 16}")
    file.touch()
    os.utime(file, (time.time() - age_s,) * 2)
    remove_left_over(path)
    assert file.exists() == stays


def test_a_folder_that_is_not_there_is_no_error(path: Path) -> None:
    remove_left_over(path / "no" / "file")
    assert not path.exists()
