"""Figures by formula: busbw factors, statistics, and what fits into the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpccomm.bench.budget import FEWEST, MOST, Budget, iterations, predict
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.definitions import busbw, definitions, wire
from hpccomm.bench.metrics import Times, busbw_gbps, slowest, spreads, summarize


@pytest.mark.parametrize(
    ("collective", "of_two", "of_three"),
    [
        ("all_reduce", 1, 4 / 3),
        ("broadcast", 1, 1),
        ("all_gather", 1 / 2, 2 / 3),
        ("reduce_scatter", 1 / 2, 2 / 3),
        ("reduce", 1, 1),
        ("gather", 1 / 2, 2 / 3),
        ("scatter", 1 / 2, 2 / 3),
        ("all_to_all", 1 / 2, 2 / 3),
        ("sendrecv", 1, 1),
    ],
)
def test_busbw_factors(collective: str, of_two: float, of_three: float) -> None:
    factor = COLLECTIVES[collective].bus_factor
    assert factor(1) is None
    assert factor(2) == pytest.approx(of_two)
    assert factor(3) == pytest.approx(of_three)


def test_every_factor_is_the_value_of_its_formula() -> None:
    for collective in COLLECTIVES.values():
        if collective.has_data:
            values = [eval(collective.formula.replace("2(", "2*("), {"n": n}) for n in range(2, 40)]
            assert [collective.bus_factor(n) for n in range(2, 40)] == pytest.approx(values), collective.name
        else:
            assert collective.bus_factor(2) is None


def test_busbw_is_the_factor_times_the_rate() -> None:
    assert busbw_gbps(10**6, 1000.0, 1.5) == pytest.approx(1.5)
    assert busbw_gbps(10**6, 1000.0, None) is None


def test_definitions_name_the_factor_and_the_ranks() -> None:
    all_reduce, broadcast, barrier = (COLLECTIVES[name] for name in ("all_reduce", "broadcast", "barrier"))
    assert busbw(all_reduce, 32) == "GB/s = 2(n-1)/n x size / time; n = 32 ranks: 1.938 x size / time"
    assert busbw(broadcast, 32) == "GB/s = size / time"
    assert busbw(all_reduce, 1) == "none with one rank"
    assert busbw(barrier, 32) == wire(barrier) == "none without data"
    assert "2(k-1)/k x size" in wire(all_reduce)
    found = definitions([all_reduce, barrier], 2)
    assert found["busbw"] == {"all_reduce": busbw(all_reduce, 2), "barrier": busbw(barrier, 2)}


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([7.0], (1, 7.0, 7.0, 7.0, 7.0, 7.0)),
        ([3.0, 1.0], (2, 2.0, 1.0, 3.0, 3.0, 3.0)),
        ([float(value) for value in range(1, 21)], (20, 10.5, 1.0, 19.0, 20.0, 20.0)),
        ([float(value) for value in range(200, 0, -1)], (200, 100.5, 1.0, 190.0, 198.0, 200.0)),
    ],
)
def test_statistics(times: list[float], expected: tuple[float, ...]) -> None:
    assert summarize(times, [3.0, 1.0, 4.0]) == Times(*expected, skew_us=3.0)  # type: ignore[arg-type, misc]


@given(st.lists(st.floats(1e-3, 1e9), min_size=1))
def test_p95_is_the_smallest_time_that_95_percent_do_not_exceed(times: list[float]) -> None:
    found = summarize(times, [0.0])
    for percent, value in ((95, found.p95_us), (99, found.p99_us)):
        assert value in times
        assert 100 * sum(time <= value for time in times) >= percent * len(times)
        assert 100 * sum(time < value for time in times) < percent * len(times)


def test_a_repetition_takes_as_long_as_its_slowest_rank() -> None:
    times = [[1.0, 9.0, 3.0], [2.0, 4.0, 1.0], [2.0, 5.0, 3.0]]
    assert slowest(times) == [2.0, 9.0, 3.0]
    assert spreads(times) == [1.0, 5.0, 2.0]


@pytest.mark.parametrize(
    ("share_s", "round_s", "asked", "expected"),
    [(10.0, 1.0, None, 10), (10.0, 0.0, None, MOST), (0.0, 1.0, None, FEWEST), (0.0, 1.0, 1000, 1000)],
)
def test_iterations_fit_the_share(share_s: float, round_s: float, asked: int | None, expected: int) -> None:
    assert iterations(share_s, round_s, asked) == expected


def test_cost_of_a_larger_size_is_predicted_linearly() -> None:
    mib = 1 << 20
    assert predict([], 4) == 0
    assert predict([(4, 2.0)], 16) == pytest.approx(2.0, rel=1e-3)
    assert predict([(16 * mib, 2.0)], 64 * mib) == pytest.approx(8.0, rel=1e-2)
    assert predict([(mib, 1.5), (2 * mib, 2.0)], 4 * mib) == pytest.approx(3.0)
    assert predict([(mib, 5.0), (2 * mib, 2.0)], 4 * mib) == pytest.approx(2.0)
    assert predict([(mib, 0.1), (2 * mib, 2.0)], 4 * mib) == pytest.approx(4.0, rel=5e-2)
    assert predict([(4, 1.0), (512, 2.0)], 65536) < 4.0


class Clock:
    """Gives the seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_budget_of_one_size_after_the_other() -> None:
    clock = Clock()
    budget = Budget(20.0, None, clock=clock)
    assert budget.allows(1 << 30)
    budget.start(2)
    clock.now += 2  # warm-up
    assert budget.choose(0.5) == 18  # (20 - 2) / 2 sizes / 0.5 s
    clock.now += 9
    budget.finish(1 << 20, is_typical=True)
    assert (budget.left_s, budget.used_s) == (9, 11)
    assert budget.estimate(1 << 20) == pytest.approx(2 + FEWEST * 0.5)
    assert budget.allows(1 << 20)
    assert not budget.allows(4 << 20)
    clock.now += 10
    assert (budget.left_s, budget.used_s) == (0, 21)


def test_budget_does_not_count_the_wait_for_a_backend_that_failed() -> None:
    clock = Clock()
    budget = Budget(20.0, None, clock=clock)
    budget.start(1)
    clock.now += 15
    budget.choose(0.1)
    budget.finish(4, is_typical=False)
    assert (budget.left_s, budget.used_s) == (20, 0)
    assert budget.estimate(16) == 0
