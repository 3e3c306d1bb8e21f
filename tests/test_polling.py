"""Waiting by polling: the core is offered for a short while, then left."""

from __future__ import annotations

import os
import time

import pytest

from hpccomm import polling


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the seconds of each sleep, 0 for a yield."""
    found: list[float] = []
    monkeypatch.setattr(os, "sched_yield", lambda: found.append(0.0))
    monkeypatch.setattr(time, "sleep", found.append)
    return found


@pytest.mark.parametrize(("waited_s", "slept_s"), [(0.0, 0.0), (0.009, 0.0), (0.1, 0.001), (0.2, 0.002), (60.0, 0.002)])
def test_a_pause_costs_at_most_a_hundredth_of_the_wait(rests: list[float], waited_s: float, slept_s: float) -> None:
    polling.pause(waited_s)
    assert rests == [pytest.approx(slept_s)]


def test_polls_until_something_holds(rests: list[float]) -> None:
    answers = iter([False, False, True])
    polling.until(lambda: next(answers))
    assert len(rests) == 2


def test_what_holds_at_once_is_not_waited_for(rests: list[float]) -> None:
    polling.until(lambda: True)
    assert rests == []
