"""The benchmark's measuring inside ranks: every collective is checked right, and a broken backend is found out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
import torch
from worlds import COMM, world

import hpccomm
from hpccomm.bench import candidates
from hpccomm.bench.candidates import Column
from hpccomm.bench.case import Case
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.measure import Meter, make_barrier
from hpccomm.bench.rows import Cell, State

REPETITIONS = 3


@pytest.fixture(scope="module")
def made() -> Iterator[hpccomm.World]:
    with world("A" * COMM.size, "mpi4py") as made:
        yield made


def columns_of(made: hpccomm.World, *texts: str, timeout_s: float = 30) -> list[Column]:
    columns = candidates.read(made.exchange, texts)
    candidates.build(columns, timeout_s=timeout_s)
    return columns


@pytest.fixture(scope="module")
def columns(made: hpccomm.World) -> Sequence[Column]:
    return columns_of(made, "mpi4py", "gloo", "hierarchical(mpi4py, gloo, by=2)")


def case_of(collective: str, op: str | None, dtype: torch.dtype = torch.float32, *, share: int = 300) -> Case:
    count = share * COMM.size
    return Case(COLLECTIVES[collective], op, dtype, rank=COMM.rank, ranks=COMM.size, count=count)


def measure(made: hpccomm.World, case: Case, columns: Sequence[Column]) -> dict[str, Cell]:
    meter = Meter(made.exchange, make_barrier(made.exchange, crowded=True), check=True, warmup_iters=1)
    return meter.measure(case, columns, lambda round_s: REPETITIONS if COMM.rank == 0 else 99, show=str)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("collective", "op", "dtype"),
    [
        *(("all_reduce", op, torch.float32) for op in ("sum", "prod", "min", "max", "avg")),
        ("all_reduce", "sum", torch.bfloat16),
        ("all_reduce", "avg", torch.int8),
        ("broadcast", None, torch.float64),
        ("all_gather", None, torch.uint8),
        ("reduce_scatter", "sum", torch.float16),
        ("reduce_scatter", "max", torch.int64),
    ],
)
def test_right_results_are_measured(
    made: hpccomm.World, columns: list[Column], collective: str, op: str | None, dtype: torch.dtype
) -> None:
    for cell in measure(made, case_of(collective, op, dtype), columns).values():
        assert (cell.state, cell.wrong, cell.error) == (State.MEASURED, 0, None)
        assert cell.times is not None
        assert cell.times.iterations == REPETITIONS
        assert 0 < cell.times.min_us <= cell.times.median_us <= cell.times.p95_us <= cell.times.max_us


@pytest.mark.mpi(min_size=2)
def test_broken_backends_are_found_out_and_take_no_other_along(made: hpccomm.World) -> None:
    at = f"rank={COMM.size - 1}"
    broken = {
        f"faulty(mpi4py, wrong, {at})": "wrong elements over all ranks before the timed calls: 2",
        f"faulty(mpi4py, wrong, {at}, call=5)": "wrong elements over all ranks after the timed calls: 1",
        f"faulty(mpi4py, raise, {at})": f"rank {COMM.size - 1}: ",
        f"faulty(gloo, raise, {at}, call=4)": f"rank {COMM.size - 1}: ",
        f"faulty(mpi4py, hang, {at}, call=5)": "waited 3.0 s",
    }
    columns = columns_of(made, "gloo", *broken, "mpi4py", timeout_s=3)
    cells = measure(made, case_of("all_reduce", "sum"), columns)
    for name, reason in broken.items():
        assert cells[name].state is (State.WRONG if "wrong" in name else State.FAILED), cells[name]
        assert reason in str(cells[name].error)
        assert cells[name].times is None
    assert {cells[name].state for name in ("gloo", "mpi4py")} == {State.MEASURED}
    assert cells == made.exchange.all_gather(cells)[0]


@pytest.mark.mpi
def test_a_backend_that_cannot_be_built_costs_its_own_column(made: hpccomm.World) -> None:
    columns = columns_of(made, "nowhere", "gloo(threads=0)", "@/no/such/file", "mpi4py", "mpi4py")
    reasons = {column.expression: column.dropped for column in columns}
    assert reasons.pop("mpi4py") is None
    assert "no backend is called 'nowhere'" in str(reasons["nowhere"])
    assert "threads=0" in str(reasons["gloo(threads=0)"])
    assert "/no/such/file" in str(reasons["@/no/such/file"])
    (alive,) = (column for column in columns if column.dropped is None)
    assert measure(made, case_of("all_reduce", "sum"), [alive])["mpi4py"].state is State.MEASURED
