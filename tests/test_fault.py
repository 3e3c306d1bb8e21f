"""Which calls a fault strikes."""

from __future__ import annotations

import pytest

from hpccomm.backends.fault import Fault, fault_of
from hpccomm.errors import OptionError
from hpccomm.expression import parse

CALLS = ("all_reduce", "send", "all_reduce", "barrier", "send", "all_reduce")


def struck(text: str, *, call: int = 0, rank: int = 0, calls: tuple[str, ...] = CALLS) -> list[int]:
    fault = fault_of(parse(text), parse("gloo"))
    return [number for number, operation in enumerate(calls) if fault.strikes(operation, call, rank)]


@pytest.mark.parametrize(
    ("text", "call", "numbers"),
    [
        ("late", 0, [0, 1, 2, 3, 4, 5]),
        ("late", 3, [2]),
        ("late(operation=any)", 7, []),
        ("wrong(operation=all_reduce)", 0, [0, 2, 5]),
        ("raise(at=after, operation=send)", 2, [4]),
        ("hang(chance=0)", 0, []),
        ("hang(chance=1.0, seed=9)", 0, [0, 1, 2, 3, 4, 5]),
    ],
)
def test_operation_and_call_say_what_is_struck(text: str, call: int, numbers: list[int]) -> None:
    assert struck(text, call=call) == numbers


def test_chance_strikes_its_part_and_the_same_calls_again() -> None:
    many = ("all_reduce",) * 10_000
    drawn = struck("late(chance=0.25, seed=4)", calls=many)
    assert len(drawn) == pytest.approx(2500, abs=5 * (10_000 * 0.25 * 0.75) ** 0.5)
    assert drawn == struck("late(chance=0.25, seed=4)", calls=many)
    assert drawn != struck("late(chance=0.25, seed=5)", calls=many)
    assert drawn != struck("late(chance=0.25, seed=4)", calls=many, rank=1)


@pytest.mark.parametrize(
    "text",
    [
        "explode",
        "late(at=never)",
        "late(operation=reduce_all)",
        "late(chance=1.5)",
        "late(chance=often)",
        "late(seed=0.5)",
        "late(calls=3)",
        "late(inside)",
    ],
)
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="no fault is called"):
        fault_of(parse(text), parse("gloo"))


def test_a_fault_strikes_before_everything_unless_it_says_otherwise() -> None:
    assert fault_of(parse("raise"), parse("gloo")) == Fault("raise", "before", "any", 1.0, 0)
