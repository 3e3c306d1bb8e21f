"""The report's warnings follow their rules, which the page lists with their sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

from hpccomm.bench import advice_report
from hpccomm.bench.compare import Recorded
from hpccomm.bench.page import html
from hpccomm.bench.page.advice import RULES, advice
from hpccomm.bench.page.runs import read
from matrices import by_slot, matrix_of, touching
from reports import SIZES, linear, recorded, rows_of
from suites import (
    BUCKETS,
    CALLS,
    LAST,
    LATE,
    NAMES,
    bucket_entries,
    efficiency_entries,
    overlap_entries,
    stability_entries,
)

HOSTS = by_slot(4, 2)


def _of(name: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**one, **change(one)} if one["backend"] == name else one for one in rows_of(HOSTS)]


def _slow_mpi(backend: str, size: int) -> float:
    return linear(backend, size) * (3 if backend == "mpi4py" else 1)


FLAT = [one for one in rows_of(HOSTS) if "hierarchical" not in one["backend"]]
ADVICE = [
    (recorded(HOSTS, FLAT), []),
    (recorded(HOSTS), ["busbw of hierarchical backends is nominal"]),
    (replace(recorded(HOSTS, FLAT), complete=False), ["made.json is of a run that did not end"]),
    (recorded(by_slot(2, 5), FLAT), ["node1 has 5 ranks on 4 cores; 2 of 2 hosts have more ranks than cores"]),
    (recorded((0, 0), FLAT), ["all ranks are on node1"]),
    (recorded((0, 0), FLAT, node_of_rank=[0, 1]), ["all ranks are on node1, cut into virtual nodes"]),
    (recorded(HOSTS, FLAT, mpi="none"), ["MPI does not join the ranks"]),
    (recorded(HOSTS, FLAT, not_built={"shm": "no memory"}), ["shm could not be built"]),
    (
        recorded(HOSTS, rows_of(HOSTS, backends=("mpi4py", "gloo"), model=_slow_mpi)),
        ["all_reduce sum of float32, in place, on 8 ranks: gloo is 2.8 times as fast as mpi4py at 16 MiB"],
    ),
    (
        recorded(HOSTS, FLAT, matrices=[matrix_of(HOSTS)]),
        ["the link is used to "],
    ),
    (
        recorded(HOSTS, [{**one, "time_us_p95": 9e9} for one in FLAT]),
        ["24 of 24 rows have a 95th percentile above 2 times"],
    ),
    (
        recorded(HOSTS, [], matrices=[matrix_of(HOSTS, dict.fromkeys(touching(HOSTS, 2), 4.0))]),
        ["host node3, sending to and receiving from other hosts: bandwidth "],
    ),
    (recorded(HOSTS, [{**one, "wrong": None} for one in FLAT]), ["results were not checked (-c 0)"]),
    (
        recorded(HOSTS, [{**one, "error": "gone", "time_us_median": None} for one in FLAT[:1]] + FLAT[1:]),
        ["mpi4py failed or was wrong at 1 row, first at all_reduce sum of float32, in place of 4 B"],
    ),
    (recorded(HOSTS, [{**one, "fell_back": "from a to b"} for one in FLAT[:1]] + FLAT[1:]), ["mpi4py fell back"]),
    (
        recorded(HOSTS, FLAT, matrices=[replace(matrix_of(HOSTS), error="rank 1: gone", edges=())]),
        ["pairs over mpi4py failed"],
    ),
    (recorded(HOSTS, FLAT, fewest_cores=2), []),
    (recorded(HOSTS, FLAT, fewest_cores=1), ["a rank may use 1 core alone"]),
    (recorded(by_slot(2, 5), FLAT, fewest_cores=1), ["node1 has 5 ranks on 4 cores"]),
    (
        recorded(HOSTS, FLAT, device="cuda"),
        [f"gloo takes {linear('gloo', SIZES[-1]):.0f} us at 16 MiB of GPUs' memory"],
    ),
    (recorded(HOSTS, rows_of(HOSTS, backends=("mpi4py",)), device="cuda"), []),
    (
        recorded(
            HOSTS, FLAT, network="10.0.0.0/24", networks={"10.0.0.0/24": 1000, "10.1.0.0/24": 500, "10.2.0.0/24": 0}
        ),
        ["Gloo uses 10.0.0.0/24, one of 2 networks that join all hosts; it leaves 10.1.0.0/24 idle"],
    ),
    (recorded(HOSTS, FLAT, network="10.0.0.0/24", networks={"10.0.0.0/24": 1000, "10.1.0.0/24": 499}), []),
    (
        recorded(HOSTS, rows_of(HOSTS, backends=("mpi4py",)), network="a", networks={"a": 0, "b": 0}),
        [],
    ),
]


@pytest.mark.parametrize(("run", "expected"), ADVICE, ids=[(found or ["none"])[0][:40] for _, found in ADVICE])
def test_warnings_follow_their_rules(run: Recorded, expected: list[str]) -> None:
    found = advice(read(run))
    shown = [one.figure for one in found if expected != ["the link is used to "] or "link" in one.figure]
    assert len(shown) == len(expected), shown
    for figure, text in zip(shown, expected, strict=True):
        assert text in figure
    assert all(one.reason and one.setting for one in found)
    on_terminal = " ".join(" ".join(advice_report.lines(found)).split())
    assert on_terminal.isascii()
    assert all(part in on_terminal for one in found for part in (one.figure, one.reason, one.setting))


def test_the_page_lists_every_rule_with_its_source() -> None:
    run = read(recorded(HOSTS))
    text = unescape(html.page([run], html.all_figures([run]), {}))
    assert all(rule.when in text and rule.source in text for rule in RULES)
    assert len({rule.find for rule in RULES}) == len(RULES)


def _later_is_better(entries: list[dict[str, Any]], times: float) -> list[dict[str, Any]]:
    """Let all but the largest bucket take so many times as long as that one."""
    return [{**one, "averaging_us": 1e4 * (1 if one["bucket_bytes"] == BUCKETS[-1] else times)} for one in entries]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (
            {"efficiency": efficiency_entries({"mpi4py": (79.0, 1.0), "gloo": (78.0, 1.0)})},
            ["in place, on 8 ranks: the link is used to 79 % of what sendrecv makes of it, below 80%"],
        ),
        ({"efficiency": efficiency_entries({"mpi4py": (50.0, 1.0), "gloo": (80.0, 1.0)})}, []),
        ({"buckets": bucket_entries(("mpi4py",))}, []),
        (
            {"buckets": _later_is_better(bucket_entries(("mpi4py",)), 1.2)},
            ["gradients of gpt2 over mpi4py: buckets of 16 MiB take 1.2 times as long as those of 64 MiB"],
        ),
        ({"buckets": _later_is_better(bucket_entries(("mpi4py",)), 1.05)}, []),
        ({"overlap": overlap_entries(("mpi4py",))}, []),
        (
            {"overlap": overlap_entries(("gloo",))},
            ["gloo hides nothing of averaging the gradients of gpt2 under backward"],
        ),
        ({"stability": stability_entries(HOSTS, NAMES)}, []),
        (
            {"stability": stability_entries(HOSTS, NAMES, late=LATE)},
            [f"rank {LATE} on host node3 comes late over mpi4py, the last in {LAST}% of {CALLS} calls"],
        ),
        ({"stability": stability_entries(HOSTS, NAMES, growing=1.0)}, ["mpi4py drifted by +"]),
    ],
)
def test_warnings_of_suites_follow_their_rules(entries: Mapping[str, Any], expected: list[str]) -> None:
    rows = rows_of(HOSTS, backends=("mpi4py",))
    run = recorded(HOSTS, rows, sections=entries)
    found = [one.figure for one in advice(read(run))]
    assert len(found) == len(expected), found
    assert all(text in figure for text, figure in zip(expected, found, strict=True))
    assert "".join(advice_report.lines(advice(read(run)))).isascii()
