"""Which backends are compared by default, and what is made of what the ranks saw."""

from __future__ import annotations

import io
import sys

import pytest

from hpccomm.bench.candidates import Candidate, defaults, different, near_root, over_leaves
from hpccomm.bench.interrupt import last_words
from hpccomm.bench.metrics import summarize
from hpccomm.bench.rows import Cell, State
from hpccomm.bench.screen import Progress, Screen
from hpccomm.bench.text import strong
from hpccomm.bench.verdict import Attempt, judge, left_early
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


def failed(error: str) -> Cell:
    return Cell("a", State.FAILED, error=error)


BROKEN = BackendError("all_reduce", found="a broken cable", remedy="mend it")
FINE = [3.0, 5.0]


@pytest.mark.parametrize(
    ("attempts", "expected"),
    [
        ([Attempt([3.0, 5.0]), Attempt([4.0, 1.0])],
         Cell("a", State.MEASURED, summarize([4.0, 5.0], [1.0, 4.0]), wrong=0)),
        ([Attempt(FINE, wrong=1), Attempt(FINE, wrong=2)], Cell("a", State.WRONG, wrong=3, error="wrong: 3")),
        ([Attempt(FINE, wrong=1), Attempt([3.0], error=BROKEN)], failed("rank 1: all_reduce: a broken cable")),
        ([Attempt([], error=deadline(0)), Attempt([], error=BROKEN)], failed("rank 1: all_reduce: a broken cable")),
        ([Attempt([], error=deadline(0)), Attempt([], error=deadline(1))],
         failed("rank 0: all_reduce: waited 2 s on rank 0")),
        ([Attempt([], error=BROKEN), Attempt([], error=BROKEN)], failed("all_reduce: a broken cable")),
    ],
)  # fmt: skip
def test_cell_of_all_ranks_attempts(attempts: list[Attempt], expected: Cell) -> None:
    wrong = sum(attempt.wrong for attempt in attempts)
    assert judge("a", attempts, wrong=wrong, fault="wrong") == expected


def test_what_was_not_checked_counts_nothing_wrong() -> None:
    assert judge("a", [Attempt(FINE)], wrong=None, fault="").wrong is None


@pytest.mark.parametrize(
    ("starts", "times_us", "hosts", "expected"),
    [
        ([[1.0, 5.0], [1.1, 5.1]], [[2e5, 2e5], [1e5, 1e5]], [0, 0], 0),
        ([[1.0, 5.0], [1.1, 5.3]], [[2e5, 2e5], [1e5, 1e5]], [0, 0], 1),  # the first left at 5.2
        ([[1.0, 5.0], [9.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]], [0, 0], 2),
        ([[1.0, 5.0], [9.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]], [0, 1], 0),
        ([[1.0], [1.1], [7.0], [8.0]], [[2e5], [1e5], [1.0], [1.0]], [0, 0, 1, 1], 1),
    ],
)
def test_a_barrier_that_does_not_wait_is_found_out_on_each_host(
    starts: list[list[float]], times_us: list[list[float]], hosts: list[int], expected: int
) -> None:
    attempts = [Attempt(times, begun) for begun, times in zip(starts, times_us, strict=True)]
    assert left_early(attempts, hosts) == expected


def test_algorithms_run_over_every_leaf_that_works() -> None:
    over_gloo = ["ring(gloo)", "tree(gloo)"]
    assert over_leaves(["ring", "tree"], has_mpi=True) == ["ring(mpi4py)", "tree(mpi4py)", *over_gloo]
    assert over_leaves(["ring", "tree"], has_mpi=False) == over_gloo


def test_a_backend_that_is_named_twice_has_one_column() -> None:
    asked, by_algorithm = Candidate("ring(gloo)", required=True), Candidate("ring(gloo)")
    assert different([asked, Candidate("gloo"), by_algorithm]) == [asked, Candidate("gloo")]


def test_last_words_say_what_is_left() -> None:
    assert last_words("SIGINT", 0) == "interrupted by SIGINT; no row was measured"
    assert last_words("SIGTERM", 1) == "interrupted by SIGTERM; 1 row is complete"
    assert last_words("SIGINT", 12) == "interrupted by SIGINT; 12 rows are complete"


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


@pytest.mark.parametrize(("bold", "shown"), [(True, f"{strong('best')} of two\n"), (False, "best of two\n")])
def test_text_is_bold_only_where_that_shows(bold: bool, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Progress(enabled=False), speaks=True, bold=bold)
    screen.say([f"{strong('best')} of two"])
    assert capsys.readouterr().out == shown


def test_a_rank_that_does_not_speak_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    Screen(Progress(enabled=False), speaks=False, bold=True).say(["a line"])
    assert capsys.readouterr() == ("", "")
