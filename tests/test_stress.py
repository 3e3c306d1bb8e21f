"""A few rounds of each stress program; `tests/stress` says how to play more of them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from harness import Mpi

STRESS = Path(__file__).with_name("stress")
MOMENTS = ("--moments", "barrier", "small", "large")
JOB_S = 200.0


def play(mpi: Mpi, program: str, *options: str) -> None:
    """Play rounds of a program under an MPI; all must hold."""
    command = [sys.executable, str(STRESS / program), "--mpi", mpi.name, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"


def test_stopped_rank_is_named_and_ends_the_job(mpi: Mpi) -> None:
    play(mpi, "stops.py", "--rounds", "1", "--seed", "27", "--deadline", "3", *MOMENTS)


def test_all_is_right_after_a_pause(one_mpi: Mpi) -> None:
    play(one_mpi, "stops.py", "--rounds", "1", "--seed", "40", *MOMENTS)


def test_killed_rank_ends_the_job(mpi: Mpi) -> None:
    play(mpi, "kills.py", "--rounds", "2", "--seed", "15")


def test_no_rank_outlives_the_launcher(mpi: Mpi) -> None:
    play(mpi, "orphans.py", "--rounds", "1", "--seed", "1", *MOMENTS)
