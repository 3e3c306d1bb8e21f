"""What the benchmark measures besides tables of collectives, inside ranks."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from worlds import COMM, world

import hpccomm
from hpccomm.bench.candidates import build, read, within
from hpccomm.bench.case import Case, Data
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.files import Record
from hpccomm.bench.gradients import GradientCase, Part, table_of
from hpccomm.bench.measure import Meter, make_barrier
from hpccomm.bench.measures.stability import repeat
from hpccomm.bench.options import Options
from hpccomm.bench.rows import State
from hpccomm.bench.screen import Progress, Screen
from hpccomm.bench.series import Run
from hpccomm.bench.tables import Table

LATE_S = 0.02

pytestmark = pytest.mark.skipif(COMM.size != 3, reason="three ranks show it")


@pytest.fixture(scope="module")
def made() -> Iterator[hpccomm.World]:
    with world("A" * COMM.size, "mpi4py") as made:
        yield made


def run_of(made: hpccomm.World) -> Run:
    meter = Meter(
        made.exchange, make_barrier(made.exchange, crowded=True), made.topology.hosts, check=True, warmup_iters=1
    )
    return Run(Options(), made, meter, Screen(Progress(enabled=False), speaks=False, bold=False), Record({}))


class LateCase(Case):
    """A case that the last rank is slow to fill."""

    def fill(self, data: Data) -> None:
        super().fill(data)
        time.sleep(LATE_S * (COMM.rank == COMM.size - 1))


@pytest.mark.mpi
def test_a_rank_that_comes_late_is_named(made: hpccomm.World) -> None:
    (candidate,) = read(made.exchange, ["mpi4py"])
    build([candidate], timeout_s=30)
    table = Table(COLLECTIVES["all_reduce"], COMM.size, "float32", "sum", "in")
    cell, found = repeat(run_of(made), LateCase(table, rank=COMM.rank, count=64), candidate, 0.0)
    assert (cell.state, cell.wrong) == (State.MEASURED, 0)
    assert found is not None
    assert found.stragglers[0].name.startswith(f"rank {COMM.size - 1} on host ")
    assert found.stragglers[0].late_us == pytest.approx(LATE_S * 1e6, rel=0.5)


@pytest.mark.mpi
@pytest.mark.parametrize("part", Part)
def test_gradients_are_right_on_every_backend_though_they_share_the_module(made: hpccomm.World, part: Part) -> None:
    candidates = read(made.exchange, ["mpi4py", "gloo"])
    build(candidates, timeout_s=30)
    shapes = [(5, 3), (7,), (300, 4), (2, 3, 3, 3)]
    table = table_of(Options(dtype="float64"), COMM.size, part)
    case = GradientCase(table, shapes, rank=COMM.rank, bucket_bytes=64, batch=3, part=part)
    for candidate in candidates * 2:
        case.fill(case.integers)
        case.run(candidate.group)
        assert case.count_wrong(case.integers) == 0
    case.fill(case.integers)
    if part is Part.AVERAGING:  # what each rank has alone is not the average, and is found to be wrong
        assert sum(made.exchange.all_gather(case.count_wrong(case.integers))) > 0
    if part is Part.BOTH:
        first, second = (case._of(candidate.group) for candidate in candidates)
        case._backward(first)
        assert (first.begun, second.begun) == (first.count, 0)
        first.wait()


@pytest.mark.mpi
def test_groups_of_some_ranks_are_dropped_by_all_where_one_of_them_cannot_be_made(made: hpccomm.World) -> None:
    asked = ["mpi4py", "faulty(mpi4py, late, rank=1, seconds=0.0)"]  # a group of one rank has no rank 1
    ranks = [0] if COMM.rank == 0 else list(range(1, COMM.size))
    found = within(read(made.exchange, asked), ranks, made.exchange, timeout_s=30)
    assert found[0].dropped is None
    assert "a group of 1 ranks" in str(found[1].dropped)
