"""Failover after the first fault: what is come back to, what is not, and what a failed attempt leaves behind."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch.distributed as dist
from worlds import COMM, FEW_RANKS, world

import hpccomm
from exact import all_reduce

pytestmark = [pytest.mark.mpi(min_size=2), FEW_RANKS]

SIZE, RANK = COMM.size, COMM.rank


@pytest.fixture(scope="module", autouse=True)
def standing() -> Iterator[hpccomm.World]:
    with world("A" * SIZE, "mpi4py") as made:
        yield made


def group(backend: str, seconds: float = 20.0) -> dist.ProcessGroup:
    return dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(backend), timeout=timedelta(seconds=seconds))


def notes(over: dist.ProcessGroup) -> list[str]:
    """Give what the group's backend noted, the same on all ranks."""
    mine = list(over._runner.backend.fell_back)
    assert all(found == mine for found in COMM.allgather(mine))
    return mine


def test_a_backend_that_was_left_is_not_used_again_after_a_return() -> None:
    first, second = "faulty(mpi4py, raise, rank=0, call=2)", "faulty(ring(mpi4py), raise, rank=0, call=1)"
    over = group(f"failover({first}, {second}, gloo, back_after=0.2, verify=false)")
    for _ in itertools.takewhile(lambda _: len(notes(over)) < 4, range(100_000)):
        all_reduce(over)
    there = [note.partition(" at call ")[0].rpartition(" to ")[2] for note in notes(over)]
    assert [name.partition("(")[0] for name in there[:2] + there[3:]] == ["faulty", "gloo", "gloo"]
