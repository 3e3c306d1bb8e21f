"""Ctrl-C and TERM in the middle of a run: what was measured is on the screen and in valid files."""

from __future__ import annotations

import csv
import json
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import Job, Mpi, Result

ENDLESS = ("-e", "4G", "-f", "2", "-n", "20", "--budget", "600", "--progress", "off")
ROWS = 3
START_S = 120.0


def interrupt(mpi: Mpi, command: Sequence[str], folder: Path, number: signal.Signals) -> Result:
    """Start an endless run and send its launcher a signal when some rows stand on the screen."""
    files = ("--json", str(folder / "out.json"), "--csv", str(folder / "out.csv"))
    with Job([*command, "-m", "hpccomm.bench", *ENDLESS, *files], env=mpi.environment()) as job:
        deadline = time.monotonic() + START_S
        while rows_on(job.stdout) < ROWS and job.process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert job.process.poll() is None, job.wait(1)
        job.process.send_signal(number)
        return job.wait(30)


def rows_on(output: str) -> int:
    """Count the rows of the table, which all begin with a power of two."""
    return sum(line.split()[:1] in ([str(2**power)] for power in range(10)) for line in output.splitlines())


def check_files(folder: Path, shown: int) -> int:
    """See that both files are valid and hold at least the rows that were shown; give how many more they hold."""
    content = json.loads((folder / "out.json").read_text())
    with (folder / "out.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert content["complete"] is False
    assert len(lines) == len(content["results"])
    sizes = {one["size_bytes"] for one in content["results"]}
    assert shown <= len(sizes)
    assert all(one["time_us_median"] > 0 for one in content["results"])
    assert {"out.csv", "out.json"} <= {path.name for path in folder.iterdir()}
    return len(sizes) - shown


def test_ctrl_c_under_mpirun(mpi: Mpi, tmp_path: Path) -> None:
    result = interrupt(mpi, mpi.command(2, [mpi.python]), tmp_path, signal.SIGINT)
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert "Traceback" not in result.stdout + result.stderr, result
    shown = rows_on(result.stdout)
    assert shown >= ROWS
    hidden = check_files(tmp_path, shown)
    if mpi.is_open_mpi:  # passes nothing on after Ctrl-C, and has a status of its own
        assert result.returncode != 0, result
    else:
        assert result.returncode == 128 + signal.SIGINT, result
        assert hidden <= 1  # the one that was on its way
        assert f"interrupted by SIGINT; {shown} rows are complete" in result.stdout, result


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_a_rank_alone(tmp_path: Path, number: signal.Signals) -> None:
    mpi = Mpi("none", Path(sys.prefix))
    result = interrupt(mpi, [mpi.python], tmp_path, number)
    assert result.returncode == 128 + number, result
    assert result.stderr == "", result
    shown = rows_on(result.stdout)
    assert result.stdout.endswith(f"interrupted by {number.name}; {shown} rows are complete\n"), result
    assert check_files(tmp_path, shown) <= 1
