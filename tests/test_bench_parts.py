"""Which backends are compared by default, and what is made of what the ranks saw."""

from __future__ import annotations

import io
import sys

import pytest

from hpccomm.bench.candidates import defaults, near_root
from hpccomm.bench.measure import Attempt, Verdict, judge
from hpccomm.bench.progress import Progress
from hpccomm.errors import BackendError, DeadlineError
from hpccomm.topology import Topology


def on_nodes(*sizes: int) -> Topology:
    nodes = tuple(node for node, size in enumerate(sizes) for _ in range(size))
    return Topology(0, nodes, nodes, tuple(f"n{node}" for node in range(len(sizes))))


@pytest.mark.parametrize(
    ("sizes", "has_mpi", "expected"),
    [
        ((1,), True, ["mpi4py", "gloo"]),
        ((3,), True, ["mpi4py", "gloo"]),
        ((2,), False, ["gloo"]),
        ((4,), True, ["mpi4py", "gloo", "hierarchical(mpi4py, mpi4py, by=2)", "hierarchical(mpi4py, gloo, by=2)"]),
        ((32,), False, ["gloo", "hierarchical(gloo, gloo, by=4)"]),
        ((2, 1), True, ["mpi4py", "gloo", "hierarchical(mpi4py, mpi4py)", "hierarchical(mpi4py, gloo)"]),
        ((2, 2), False, ["gloo", "hierarchical(gloo, gloo)"]),
        ((1, 1, 1, 1), True, ["mpi4py", "gloo"]),
    ],
)
def test_default_backends(sizes: tuple[int, ...], has_mpi: bool, expected: list[str]) -> None:
    assert defaults(on_nodes(*sizes), has_mpi=has_mpi) == expected


@pytest.mark.parametrize(("ranks", "expected"), [(4, 2), (5, 2), (6, 2), (7, 3), (9, 3), (12, 3), (16, 4), (32, 4)])
def test_pretended_nodes_have_about_as_many_ranks_as_there_are_nodes(ranks: int, expected: int) -> None:
    assert near_root(ranks) == expected


def deadline(rank: int) -> DeadlineError:
    return DeadlineError("all_reduce", found=f"waited 2 s on rank {rank}", remedy="see there")


BROKEN = BackendError("all_reduce", found="a broken cable", remedy="mend it")
FINE = [3.0, 5.0]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([Attempt([3.0, 5.0]), Attempt([4.0, 1.0])], Verdict([4.0, 5.0], 0)),
        ([Attempt(FINE, wrong=1), Attempt(FINE, wrong=2)], Verdict(FINE, 3)),
        ([Attempt(FINE), Attempt([3.0], error=BROKEN)], Verdict([], 0, "rank 1: all_reduce: a broken cable")),
        ([Attempt([], error=deadline(0)), Attempt([], error=BROKEN)],
         Verdict([], 0, "rank 1: all_reduce: a broken cable")),
        ([Attempt([], error=deadline(0)), Attempt([], error=deadline(1))],
         Verdict([], 0, "rank 0: all_reduce: waited 2 s on rank 0")),
        ([Attempt([], error=BROKEN), Attempt([], error=BROKEN)], Verdict([], 0, "all_reduce: a broken cable")),
    ],
)  # fmt: skip
def test_verdict_of_all_ranks(attempts: list[Attempt], expected: Verdict) -> None:
    assert judge(attempts) == expected


def test_progress_line_is_overwritten_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    progress = Progress(enabled=True)
    progress.show("starting")
    progress.step("too soon after it")
    progress.clear()
    progress.clear()
    assert stream.getvalue() == "\rstarting\x1b[K\r\r\x1b[K"


def test_progress_that_is_off_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(enabled=False)
    progress.show("starting")
    progress.step("on")
    progress.clear()
    assert capsys.readouterr() == ("", "")
