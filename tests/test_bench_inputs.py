"""What the benchmark puts in and expects: exact in every dtype, and sensitive to every wrong element."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from hpccomm.bench.case import Case, Data
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.inputs import (
    PERIOD,
    RANDOM_PERIOD,
    Range,
    count_different,
    fill,
    integers,
    random_row,
    random_sum,
    reduced,
)
from hpccomm.bench.options import DTYPES, OPS
from hpccomm.bench.tables import Table

ALL_DTYPES = [getattr(torch, name) for name in sorted(set(DTYPES.values()))]
ALL_OPS = sorted(set(OPS.values()))
RANKS = [1, 2, 3, 5, 32, 300]
STEPS = {"sum": torch.add, "prod": torch.mul, "min": torch.minimum, "max": torch.maximum, "avg": torch.add}


@pytest.mark.parametrize(("op", "ranks"), [*product(ALL_OPS, RANKS)])
@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_partial_reductions_are_exact_in_any_order(op: str, ranks: int, dtype: torch.dtype) -> None:
    table = integers(op, ranks, Range.of(dtype))
    assert torch.equal(table.to(dtype).long(), table)
    carry = torch.promote_types(dtype, torch.float32 if dtype.is_floating_point else torch.int64)
    for order in (range(ranks), reversed(range(ranks)), torch.randperm(ranks).tolist()):
        so_far = torch.zeros(PERIOD, dtype=carry) if op == "avg" else None
        for rank in order:
            row = table[rank].to(dtype if so_far is None else so_far.dtype)
            so_far = row if so_far is None else STEPS[op](so_far, row)
        assert so_far is not None
        result = so_far / ranks if op == "avg" else so_far
        assert torch.equal(result.double(), reduced(op, table).double())


@pytest.mark.parametrize(("op", "ranks"), [*product([*ALL_OPS, None], [2, 3, 5, 32])])
def test_inputs_differ_from_rank_to_rank_and_place_to_place(op: str | None, ranks: int) -> None:
    table = integers(op, ranks, Range.of(torch.int8))
    assert len({tuple(row.tolist()) for row in table}) == ranks
    assert all(len(row.unique()) > 1 for row in table)


@pytest.mark.parametrize("op", ["sum", "prod", "avg"])
def test_a_missing_contribution_changes_the_result_of_every_element_that_it_counts_for(op: str) -> None:
    table = integers(op, 4, Range.of(torch.float32))
    neutral = 1 if op == "prod" else 0
    step = torch.prod if op == "prod" else torch.sum
    for rank in range(4):
        without = step(torch.cat([table[:rank], table[rank + 1 :]]), 0)
        assert torch.equal(without != step(table, 0), table[rank] != neutral)


@pytest.mark.parametrize("count", [0, 1, 250, 251, 252, 5000])
def test_patterns_are_filled_in_and_compared(count: int) -> None:
    pattern = torch.arange(PERIOD)
    tensor = torch.empty(count)
    fill(tensor, pattern)
    assert tensor.tolist() == [place % PERIOD for place in range(count)]
    assert count_different(tensor, pattern) == 0
    for place in {0, count // 2, count - 1} if count else set():
        tensor[place] += 1
    assert count_different(tensor, pattern) == min(count, 3)


def test_nan_is_wrong_and_a_bound_is_kept() -> None:
    pattern, bound = torch.zeros(10, dtype=torch.float64), torch.full((10,), 0.5, dtype=torch.float64)
    tensor = torch.zeros(25)
    tensor[[0, 11, 24]] = torch.tensor([0.5, 0.51, float("nan")])
    assert count_different(tensor, pattern, bound) == 2
    assert count_different(tensor, pattern) == 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("ranks", [1, 2, 9])
def test_random_sums_are_within_the_bound_and_not_far(dtype: torch.dtype, ranks: int) -> None:
    expected, bound = random_sum("sum", ranks, dtype)
    total = torch.zeros(RANDOM_PERIOD, dtype=dtype)
    for rank in range(ranks):
        total += random_row(rank, dtype)
    assert count_different(total, expected, bound) == 0
    doubled = total + random_row(0, dtype)
    assert count_different(doubled, expected, bound) > (0.99 if dtype == torch.float32 else 0.5) * RANDOM_PERIOD
    average, narrower = random_sum("avg", ranks, dtype)
    assert torch.equal(average, expected / ranks)
    assert torch.equal(narrower, bound / ranks)


def cases_of(collective: str, ranks: int, count: int, *, op: str | None = None, place: str | None = None) -> list[Case]:
    """Give the case of every rank, in the usual place unless another one is named."""
    made = COLLECTIVES[collective]
    table = Table(made, ranks, "float32", op, place or next(iter(made.places), None))
    return [Case(table, rank=rank, count=count) for rank in range(ranks)]


def run_by_hand(cases: list[Case]) -> None:
    """Do what the collective does, in float64, on the tensors of all ranks."""
    table = cases[0].table
    sources = torch.stack([case.source.double() for case in cases])
    if table.op:
        whole = {"sum": sources.sum, "avg": sources.mean, "max": sources.amax}[table.op](0)
    for rank, case in enumerate(cases):
        result = {
            "all_reduce": lambda: whole,
            "broadcast": lambda: sources[0],
            "all_gather": lambda: sources.flatten(),
            "reduce_scatter": lambda: whole.chunk(len(cases))[rank],  # noqa: B023 - called at once
            "reduce": lambda: whole,
            "gather": lambda: sources.flatten(),
            "scatter": lambda: sources[0].chunk(len(cases))[rank],  # noqa: B023 - called at once
            "all_to_all": lambda: torch.cat([one.chunk(len(cases))[rank] for one in sources]),  # noqa: B023
            "sendrecv": lambda: sources[rank - 1],  # noqa: B023 - called at once
        }[table.collective.name]()
        case.output.copy_(result)


def every_data(case: Case) -> list[Data]:
    return [data for data in (case.integers, case.random) if data]


WITH_DATA = [(name, place) for name, collective in COLLECTIVES.items() for place in collective.places]


@pytest.mark.parametrize(("collective", "place"), WITH_DATA)
@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("share", [1, 7, 300, 251])
def test_cases_accept_what_is_right_and_see_what_is_wrong(collective: str, place: str, ranks: int, share: int) -> None:
    for op in ("sum", "avg", "max") if COLLECTIVES[collective].reduces else (None,):
        cases = cases_of(collective, ranks, share * ranks, op=op, place=place)
        for which in range(len(every_data(cases[0]))):
            for case in cases:
                case.fill(every_data(case)[which])
            compared = [case for case in cases if every_data(case)[which].blocks]
            if place == "out":
                assert all(case.count_wrong(every_data(case)[which]) == len(case.output) for case in compared)
            run_by_hand(cases)
            for case in compared:
                assert case.count_wrong(every_data(case)[which]) == 0
                case.output[-1] += 1
                assert case.count_wrong(every_data(case)[which]) == 1


@pytest.mark.parametrize(
    ("collective", "place", "source", "output"),
    [
        ("all_reduce", "in", [0, 6], [0, 6]),
        ("broadcast", "in", [0, 6], [0, 6]),
        ("all_gather", "in", [2, 4], [0, 6]),
        ("reduce_scatter", "in", [0, 6], [2, 4]),
        ("all_reduce", "out", [0, 6], None),
        ("all_gather", "out", [0, 2], None),
        ("reduce_scatter", "out", [0, 6], None),
        ("gather", "out", [0, 2], None),
        ("scatter", "out", [0, 6], None),
        ("all_to_all", "out", [0, 6], None),
        ("sendrecv", "out", [0, 6], None),
    ],
)
def test_in_place_a_share_is_the_ranks_own_part_of_the_whole(
    collective: str, place: str, source: list[int], output: list[int] | None
) -> None:
    case = cases_of(collective, 3, 6, op="sum" if COLLECTIVES[collective].reduces else None, place=place)[1]
    if output is None:
        assert case.source.numel() == source[1] - source[0]
        assert case.source.untyped_storage().data_ptr() != case.output.untyped_storage().data_ptr()
        return
    whole = max(case.source, case.output, key=torch.Tensor.numel)
    for tensor, (start, end) in ((case.source, source), (case.output, output)):
        assert tensor.data_ptr() == whole[start:].data_ptr()
        assert tensor.numel() == end - start


def test_a_barrier_has_nothing_to_compare() -> None:
    for case in cases_of("barrier", 2, 0):
        case.fill(case.integers)
        assert case.count_wrong(case.integers) == case.output.numel() == 0
        assert case.random is None


def test_swapped_blocks_are_wrong() -> None:
    for name, op in (("all_gather", None), ("reduce_scatter", "sum")):
        cases = cases_of(name, 2, 512, op=op)
        for case in cases:
            case.fill(case.integers)
        run_by_hand(cases)
        halves: list[Tensor] = [case.output.clone() for case in cases]
        if name == "all_gather":
            cases[0].output.copy_(halves[0].roll(256))
        else:
            cases[0].output.copy_(halves[1])
        assert cases[0].count_wrong(cases[0].integers) > 200
