"""How the report reads what is no table: from files, of very many ranks, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpccomm.bench.compare import load
from hpccomm.bench.page import html
from hpccomm.bench.page.runs import read
from hpccomm.bench.page.sections.by_rank import MOST_POINTS
from hpccomm.errors import OptionError
from reports import recorded
from suites import HOSTS, LATE, NAMES, all_sections, curve, stability_entries, starts, told, whole

ANCHORS = ["efficiency", "overlap", "buckets", "workloads", "stability", "start"]
MOST_BYTES = 6_000_000


def test_sections_of_very_many_ranks_and_many_backends_are_small() -> None:
    ranks, slow = 4096, 3000
    hosts, backends = [rank // 8 for rank in range(ranks)], [f"backend{number}" for number in range(8)]
    entries = stability_entries(hosts, [f"node{host}" for host in range(512)], late=slow, backends=backends)
    made = recorded(tuple(hosts), [], sections={"stability": entries}, start_up_of_ranks=starts(ranks, slow=slow))
    found = told(made)
    late = curve(found["stability"], "late")["backend0"]
    assert len(late) == MOST_POINTS
    assert {first for first, value in late.items() if value == 50.0} == {slow // 8 * 8}
    assert found["start"].sentences[0].startswith(f"Start: rank {slow} on host ")
    run = read(made)
    assert len(html.page([run], html.all_figures([run]), {}).encode()) < MOST_BYTES / 2


def _without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda one: {key: value for key, value in one.items() if key != name}


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("efficiency", _without("limit_GBps")),
        ("efficiency", _without("place")),
        ("efficiency", lambda one: {**one, "busbw_GBps": 0.0}),
        ("efficiency", lambda one: {**one, "limit_GBps": float("inf")}),
        ("efficiency", lambda one: {**one, "ranks": "many"}),
        ("overlap", _without("both_us")),
        ("overlap", lambda one: {**one, "averaging_us": 0}),
        ("buckets", lambda one: {**one, "bucket_bytes": -1}),
        ("buckets", lambda one: {**one, "averaging_us": None}),
        ("workloads", lambda one: {**one, "kinds": []}),
        ("workloads", lambda one: {**one, "kinds": [{**one["kinds"][0], "time_us": "soon"}]}),
        ("stability", _without("course")),
        ("stability", lambda one: {**one, "course": []}),
        ("stability", lambda one: {**one, "last": one["last"][1:]}),
        ("stability", lambda one: {**one, "late_us": [float("nan"), *one["late_us"][1:]]}),
    ],
)
def test_sections_that_the_benchmark_does_not_write_are_refused(
    section: str, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    entries = all_sections(HOSTS, NAMES, late=LATE)
    first, *rest = entries[section]
    read(whole(sections=entries))
    with pytest.raises(OptionError, match=r"report made\.json"):
        read(whole(sections={**entries, section: [change(first), *rest]}))


@pytest.mark.parametrize("start", [starts(7, slow=0), [[1.0, 1.0]] * 8, [[1.0, 1.0, -1.0]] * 8, 3])
def test_a_start_that_the_benchmark_does_not_write_is_refused(start: Any) -> None:
    with pytest.raises(OptionError, match=r"report made\.json"):
        read(whole(start_up_of_ranks=start))


def test_sections_are_read_from_a_file(tmp_path: Path) -> None:
    made, path = whole(), tmp_path / "old.json"
    content = {"environment": made.environment, "complete": True, "results": made.results, **made.sections}
    path.write_text(json.dumps(content))
    found = told(load(path))
    assert list(found) == ANCHORS
    assert found == told(replace(made, name="other"))
