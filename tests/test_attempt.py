"""Attempts of failover: how long they are stepped, and what is told of why they were given up. No ranks are needed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from hpccomm.backends.attempt import Attempt
from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.backends.jury import HEARD

PATIENCE_S = 0.05


class Others:
    """What the other ranks tell: which attempt they have given up; and what they are told."""

    timeout_s = None

    def __init__(self, given_up: int = 0) -> None:
        self.given_up, self.told = given_up, list[int]()

    def give_up(self, number: int) -> None:
        self.told.append(number)

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def find_sender(self, tag: int, timeout_s: float) -> int | None:
        raise AssertionError(tag)


def outcome(operation: Operation, others: Others, *, look_after_s: float = 0.0) -> str:
    """Step attempt 3 at an operation, looking at it at such intervals."""
    stepped = Attempt(3, others, lambda: PATIENCE_S).step(operation)
    try:
        while True:
            waits = next(stepped)
            if isinstance(waits, LibraryCall):
                waits.call(60.0)
            time.sleep(look_after_s)
    except StopIteration as ended:
        return str(ended.value)


def waiting(polls: int) -> Operation:
    for _ in range(polls):
        yield "a message"


def failing() -> Operation:
    yield "a message"
    raise RuntimeError("it broke")


def test_what_arrived_while_nobody_looked_is_taken() -> None:
    others = Others()
    assert outcome(waiting(1), others, look_after_s=3 * PATIENCE_S) == ""
    assert not others.told


def test_what_still_waits_when_somebody_looks_again_is_given_up() -> None:
    others = Others()
    failure = outcome(waiting(2), others, look_after_s=3 * PATIENCE_S)
    assert failure == "did not end in 0.05 s, waiting for a message"
    assert others.told == [3]


@pytest.mark.parametrize(("takes_s", "failure"), [(0.0, "RuntimeError: cut off"), (0.1, "did not end in 0.05 s, ")])
def test_a_call_that_fails_ends_the_attempt_and_nothing_goes_on_after_it(takes_s: float, failure: str) -> None:
    went_on = []

    def call(left_s: float) -> None:
        assert left_s <= PATIENCE_S
        time.sleep(takes_s)
        raise RuntimeError("cut off")

    def calling() -> Iterator[LibraryCall]:
        yield LibraryCall(call, "a call")
        went_on.append(True)

    assert outcome(calling(), Others()).startswith(failure)  # type: ignore[arg-type]
    assert not went_on


def test_a_failure_is_told_once() -> None:
    others = Others(given_up=2)  # an attempt before this one
    assert outcome(failing(), others) == "RuntimeError: it broke"
    assert others.told == [3]


def test_what_breaks_after_another_rank_gave_up_does_not_hide_why() -> None:
    others = Others()

    def breaking() -> Operation:
        others.given_up = 3
        raise RuntimeError("the other end has closed it")
        yield ""

    assert outcome(breaking(), others) == HEARD
    assert outcome(waiting(1), others) == HEARD
    assert not others.told
