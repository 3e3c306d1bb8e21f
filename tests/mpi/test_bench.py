"""The benchmark's measuring inside ranks: every collective is checked right, and a broken backend is found out."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest
from worlds import COMM, world

import hpccomm
from hpccomm.backends.base import Operation
from hpccomm.backends.mpi import MpiBackend
from hpccomm.backends.registry import register
from hpccomm.bench.candidates import Candidate, build, read, revive
from hpccomm.bench.case import Case
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.facts import facts
from hpccomm.bench.measure import Meter, make_barrier
from hpccomm.bench.rows import Cell, State
from hpccomm.bench.tables import Table

REPETITIONS = 3


@pytest.fixture(scope="module")
def made() -> Iterator[hpccomm.World]:
    with world("A" * COMM.size, "mpi4py") as made:
        yield made


def candidates_of(made: hpccomm.World, *texts: str, timeout_s: float = 30) -> list[Candidate]:
    found = read(made.exchange, texts)
    build(found, timeout_s=timeout_s)
    return found


@pytest.fixture(scope="module")
def candidates(made: hpccomm.World) -> Sequence[Candidate]:
    return candidates_of(made, "mpi4py", "gloo", "hierarchical(mpi4py, gloo, by=2)")


def table_of(collective: str, op: str | None = None, dtype: str = "float32", place: str | None = None) -> Table:
    made = COLLECTIVES[collective]
    return Table(made, COMM.size, dtype, op, place or next(iter(made.places), None))


def case_of(table: Table, *, share: int = 300) -> Case:
    count = share * COMM.size if table.collective.has_data else 0
    return Case(table, rank=COMM.rank, count=count)


def meter_of(made: hpccomm.World, *, late_s: float = 0) -> Meter:
    """Give a meter; the last rank begins each timed call late by so many seconds."""
    barrier = make_barrier(made.exchange, crowded=True)

    def delayed() -> None:
        barrier()
        time.sleep(late_s * (COMM.rank == COMM.size - 1))

    return Meter(made.exchange, delayed, made.topology.hosts, check=True, warmup_iters=1)


def measure(meter: Meter, case: Case, candidates: Sequence[Candidate]) -> dict[str, Cell]:
    return meter.measure(case, candidates, lambda round_s: REPETITIONS if COMM.rank == 0 else 99, show=str)


EVERY_FORM = [
    (name, "sum" if collective.reduces else None, "float32", place)
    for name, collective in COLLECTIVES.items()
    for place in collective.places or (None,)
]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("collective", "op", "dtype", "place"),
    [
        *EVERY_FORM,
        *(("all_reduce", op, "float32", "in") for op in ("prod", "min", "max", "avg")),
        ("all_reduce", "sum", "bfloat16", "out"),
        ("all_reduce", "avg", "int8", "in"),
        ("broadcast", None, "float64", "in"),
        ("all_gather", None, "uint8", "in"),
        ("reduce_scatter", "sum", "float16", "out"),
        ("reduce_scatter", "max", "int64", "in"),
        ("sendrecv", None, "bfloat16", "out"),
    ],
)
def test_right_results_are_measured(
    made: hpccomm.World, candidates: list[Candidate], collective: str, op: str | None, dtype: str, place: str | None
) -> None:
    table = table_of(collective, op, dtype, place)
    if COMM.size < table.collective.fewest_ranks:
        pytest.skip(f"{collective} needs {table.collective.fewest_ranks} ranks")
    for cell in measure(meter_of(made), case_of(table), candidates).values():
        assert (cell.state, cell.wrong, cell.error) == (State.MEASURED, 0, None)
        assert cell.times is not None
        assert cell.times.iterations == REPETITIONS
        assert 0 < cell.times.min_us <= cell.times.median_us <= cell.times.p95_us <= cell.times.p99_us
        assert cell.times.p99_us <= cell.times.max_us
        assert 0 <= cell.times.skew_us <= cell.times.max_us


class Leaky(MpiBackend):
    """MPI with a barrier that does not wait."""

    def barrier(self) -> Operation:
        yield from ()


@pytest.mark.mpi(min_size=2)
def test_a_barrier_that_does_not_wait_is_wrong(made: hpccomm.World) -> None:
    register("leaky", Leaky)
    late = meter_of(made, late_s=0.2)
    cells = measure(late, case_of(table_of("barrier")), candidates_of(made, "leaky", "mpi4py", "gloo"))
    assert cells["leaky"].state is State.WRONG
    assert cells["leaky"].wrong == REPETITIONS
    assert "before another one of its host had come" in str(cells["leaky"].error)
    for name in ("mpi4py", "gloo"):
        assert cells[name].state is State.MEASURED
        assert cells[name].times is not None
        assert cells[name].times.skew_us > 0.5 * 0.2e6  # the last rank found all others waiting


@pytest.mark.mpi(min_size=2)
def test_bytes_between_nodes_count_elements_as_they_travel(made: hpccomm.World, candidates: list[Candidate]) -> None:
    nodes = (COMM.size + 1) // 2
    for dtype, widening in (("float32", 1), ("bfloat16", 2)):
        found = {
            candidate.expression: facts(table_of("all_reduce", "sum", dtype), candidate, made.topology)
            for candidate in candidates
        }
        assert found.pop("hierarchical(mpi4py, gloo, by=2)").wire == (
            pytest.approx(widening * 2 * (nodes - 1) / nodes) if nodes > 1 else None
        )
        assert {one.wire for one in found.values()} == {None}


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
    candidates = candidates_of(made, "gloo", *broken, "mpi4py", timeout_s=3)
    cells = measure(meter_of(made), case_of(table_of("all_reduce", "sum")), candidates)
    for name, reason in broken.items():
        assert cells[name].state is (State.WRONG if "wrong" in name else State.FAILED), cells[name]
        assert reason in str(cells[name].error)
        assert cells[name].times is None
    assert {cells[name].state for name in ("gloo", "mpi4py")} == {State.MEASURED}
    assert cells == made.exchange.all_gather(cells)[0]


@pytest.mark.mpi
def test_a_backend_that_cannot_be_built_costs_its_own_column(made: hpccomm.World) -> None:
    candidates = candidates_of(made, "nowhere", "gloo(threads=0)", "@/no/such/file", "mpi4py", "mpi4py")
    reasons = {candidate.expression: candidate.dropped for candidate in candidates}
    assert reasons.pop("mpi4py") is None
    assert "no backend is called 'nowhere'" in str(reasons["nowhere"])
    assert "threads=0" in str(reasons["gloo(threads=0)"])
    assert "/no/such/file" in str(reasons["@/no/such/file"])
    (alive,) = (candidate for candidate in candidates if candidate.dropped is None)
    cells = measure(meter_of(made), case_of(table_of("all_reduce", "sum")), [alive])
    assert cells["mpi4py"].state is State.MEASURED


@pytest.mark.mpi
def test_a_backend_that_failed_is_made_anew_for_the_next_table(made: hpccomm.World) -> None:
    (candidate, other) = candidates_of(made, "faulty(mpi4py, raise, rank=0)", "mpi4py", timeout_s=3)
    meter, case = meter_of(made), case_of(table_of("all_reduce", "sum"))
    before = candidate.group, other.group
    assert measure(meter, case, [candidate])[candidate.expression].state is State.FAILED
    candidate.dropped = "failed"
    revive([candidate, other], timeout_s=3)
    assert (candidate.dropped, other.group) == (None, before[1])
    assert candidate.group is not before[0]
    cells = measure(meter, case, [candidate, other])
    assert "a fault put there on purpose" in str(cells[candidate.expression].error)
    assert cells["mpi4py"].state is State.MEASURED
