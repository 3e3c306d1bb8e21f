"""Calls that a rank's death does not end inside MPI."""

from __future__ import annotations

import threading

import pytest

from hpccomm import ulfm
from hpccomm.errors import RankLostError


class Communicator:
    """One that may be revoked."""

    def __init__(self, *, revoked: bool = False) -> None:
        self.revoked = revoked

    def Is_revoked(self) -> bool:
        return self.revoked


@pytest.fixture
def dead(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    ranks: list[int] = []
    monkeypatch.setattr(ulfm, "failed", lambda _: ranks)
    return ranks


@pytest.mark.parametrize("revoked", [False, True])
def test_a_call_that_holds_a_lost_rank_is_left_behind(dead: list[int], revoked: bool) -> None:
    inside, end = threading.Event(), threading.Event()

    def call() -> None:
        inside.set()
        if not revoked:
            dead.append(1)
        end.wait(60)

    with pytest.raises(RankLostError, match="make channels"):
        ulfm.interruptible(Communicator(revoked=revoked), call, "make channels")
    assert inside.wait(60)
    assert ulfm.is_held()
    end.set()
    for thread in ulfm._left_behind:
        thread.join(60)
    assert not ulfm.is_held()


def test_a_call_gives_what_it_gives_where_no_rank_is_lost(dead: list[int]) -> None:
    assert ulfm.interruptible(Communicator(), lambda: 7, "make channels") == 7
    with pytest.raises(ZeroDivisionError):
        ulfm.interruptible(Communicator(), lambda: 1 // 0, "make channels")
    assert not ulfm.is_held()
