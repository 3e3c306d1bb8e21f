"""Worlds that go on without ranks that were killed, under Open MPI's mpirun that tolerates that."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from harness import Mpi, Result, run_job
from hpccomm.bootstrap.world import World
from hpccomm.errors import RankLostError
from hpccomm.training.survival import survive

DEATHS_INSIDE = Path(__file__).with_name("stress") / "deaths.py"
PROGRAM = Path(__file__).with_name("programs") / "survivors.py"
BACKEND = "failover(hierarchical(mpi4py, gloo), gloo)"
DEATHS = ("2:2:start", "2:1:shrink", "5:0:after")
UNMATCHED = """
import time
import torch, torch.distributed as dist
import hpccomm
with hpccomm.init("mpi4py", timeout_s=40, on_lost_rank="shrink") as world:
    if world.topology.rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
    assert not world.agree(world.topology.rank == 0)
    began = time.monotonic()
    assert world.shrink() == ()
    assert time.monotonic() - began < 20
    total = torch.ones(3)
    dist.all_reduce(total)
    assert total.tolist() == [2.0] * 3
print("right", flush=True)
"""
TOO_LATE = "from mpi4py import MPI; import hpccomm; hpccomm.init(on_lost_rank='shrink')"
JOB_S = 200.0


def run(mpi: Mpi, np: int, *argv: str) -> Result:
    tolerant = replace(mpi, options=(*mpi.options, "--with-ft", "ulfm"))
    result = run_job(tolerant, np, [mpi.python, *argv], env={"HPCCOMM_RANKS_PER_NODE": "2"}, timeout_s=JOB_S)
    assert not result.timed_out, result
    assert not result.leftovers, result
    return result


@pytest.fixture
def open_mpi(one_mpi: Mpi) -> Mpi:
    if not one_mpi.is_open_mpi:
        pytest.skip("only Open MPI lets a job go on without a rank")
    return one_mpi


def test_training_goes_on_as_if_only_those_left_had_been_there(open_mpi: Mpi) -> None:
    """One rank dies, another one while the world shrinks, and a third one when it has done its part of a step."""
    result = run(open_mpi, 4, str(PROGRAM), BACKEND, *DEATHS)
    assert result.returncode == 0, result
    assert "rank 3 is right\n" in result.stdout, result
    assert result.stdout.count("dies ") == len(DEATHS), result
    assert re.search("the world shrank from 4 to 2 ranks: lost rank 1 on .*, rank 2 on ", result.stderr), result


def test_a_rank_that_dies_while_others_wait_for_it_to_make_channels_is_left_out_too(open_mpi: Mpi) -> None:
    result = run(open_mpi, 4, str(PROGRAM), BACKEND, "2:2:start", "2:1:channels")
    assert result.returncode == 0, result
    assert result.stdout.count("is right\n") == 2, result
    assert result.stdout.count("dies ") == 2, result
    assert "signal" not in result.stderr, result  # MPI ends under the thread that is left in it


def test_ranks_that_die_inside_a_sum_leave_no_wrong_one(open_mpi: Mpi) -> None:
    command = [sys.executable, str(DEATHS_INSIDE), "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=JOB_S, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_a_world_shrinks_though_a_rank_is_alone_in_an_operation(open_mpi: Mpi) -> None:
    result = run(open_mpi, 2, "-c", UNMATCHED)
    assert result.returncode == 0, result
    assert result.stdout.count("right\n") == 2, result


class Shrunk:
    """A world that has lost a rank, of which nothing but the exchange's error tells."""

    lost = ()

    def __init__(self) -> None:
        self.said: list[bool] = []

    def agree(self, well: bool) -> bool:
        self.said.append(well)
        return well

    def shrink(self) -> None:
        pass


def test_an_error_of_loss_is_enough_to_do_a_step_again() -> None:
    errors = [RankLostError("gather", found="a rank has died", remedy="shrink")]

    def compute() -> str:
        if errors:
            raise errors.pop()
        return "done"

    world = Shrunk()
    assert survive(cast(World, world), compute, rebuild=lambda: None) == "done"
    assert world.said == [False, True]


def test_mpi_that_was_started_before_with_han_is_refused(open_mpi: Mpi) -> None:
    result = run(open_mpi, 2, "-c", TOO_LATE)
    assert result.returncode != 0, result
    assert result.stderr.count("LaunchError: go on without ranks that die") == 1, result
    assert "MPI was started before" in result.stderr, result
