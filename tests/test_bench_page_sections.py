"""The report's sections of efficiency, start, buckets, overlap, workloads and stability, from results by formulas."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from hpccomm.bench.models import TRANSFORMERS
from hpccomm.bench.page import html, write
from hpccomm.bench.page.runs import Run, read
from hpccomm.bench.page.shapes import Bars
from reports import NASTY, recorded, rows_of
from suites import (
    BACKWARD_US,
    BATCH,
    BUCKETS,
    CALLS,
    HIDDEN,
    HOSTS,
    LAST,
    LATE,
    MIB,
    NAMES,
    REACHED,
    all_sections,
    averaging_us,
    bucket_entries,
    curve,
    efficiency_entries,
    stability_entries,
    starts,
    told,
    whole,
    workload_entries,
)

ANCHORS = ["efficiency", "overlap", "buckets", "workloads", "stability", "start"]


def test_every_suite_has_a_section_and_nothing_else_has() -> None:
    assert list(told(whole())) == ANCHORS
    for left in ANCHORS[:-1]:
        assert list(told(whole(sections={left: all_sections(HOSTS, NAMES, late=LATE)[left]}))) == [left, "start"]
    assert told(recorded(HOSTS)) == {}


def test_efficiency_says_what_each_table_reaches_of_sendrecv_the_best_backend_first() -> None:
    found = told(whole())["efficiency"]
    assert found.sentences == [
        "all_reduce sum of float32, in place, on 8 ranks: 85 % of the 2.00 GB/s that ranks send each other, with gloo "
        "at 4 MiB; 50 % with mpi4py.",
        "broadcast of float32, in place, on 8 ranks: 90 % of the 2.00 GB/s that ranks send each other, with mpi4py at "
        "4 MiB; 40 % with gloo.",
    ]
    all_reduce, broadcast = (bars for bars in found.figures if isinstance(bars, Bars))
    assert [(row.name, row.values) for row in all_reduce.rows] == [("gloo", (85.0,)), ("mpi4py", (50.0,))]
    assert [row.values for row in broadcast.rows] == [(90.0,), (40.0,)]
    assert (broadcast.label, broadcast.unit) == ("highest busbw (% of sendrecv's)", "%")
    assert [row[1:] for row in found.values[0].rows[:2]] == [
        ("gloo", "4 MiB", "1.70", "85 %"),
        ("mpi4py", "4 MiB", "1.00", "50 %"),
    ]
    (alone, _) = told(whole(sections={"efficiency": efficiency_entries({"shm": (130.0, 1.0)})}))["efficiency"].sentences
    assert "130 % of" in alone
    assert alone.endswith("with shm at 4 MiB.")


def test_tables_of_one_collective_are_held_apart() -> None:
    first, _, third, _ = efficiency_entries(REACHED)
    few = {**first, "ranks": 2}
    found = told(whole(sections={"efficiency": [first, few, {**first, "place": "out"}, third]}))["efficiency"]
    assert [figure.name for figure in found.figures] == [f"run1-efficiency{number}" for number in range(1, 5)]
    assert [text.partition(":")[0] for text in found.sentences][:3] == [
        "all_reduce sum of float32, in place, on 8 ranks",
        "all_reduce sum of float32, in place, on 2 ranks",
        "all_reduce sum of float32, out of place, on 8 ranks",
    ]


def test_overlap_says_what_is_hidden_at_the_shortest_step_and_where_the_most_is() -> None:
    found = told(whole())["overlap"]
    both = {
        size: BACKWARD_US + averaging_us("mpi4py", size) * (1 - HIDDEN["mpi4py"][at] / 100)
        for at, size in enumerate(BUCKETS)
    }
    best = min(both, key=lambda size: both[size])
    assert best == 16 * MIB
    assert found.sentences == [
        "Gradients of gpt2: their averaging is hidden under backward to 61 % with mpi4py in buckets of 16 MiB, its "
        "best; most, 75 %, in buckets of 1 MiB.",
        "Gradients of gpt2: none of their averaging is hidden under backward with gloo in buckets of 16 MiB, its best.",
        f"Gradients of gpt2: the shortest step is {both[best]:.0f} us, with mpi4py in buckets of 16 MiB.",
    ]
    hidden = curve(found, "hidden")
    assert hidden == {name: pytest.approx(dict(zip(BUCKETS, of, strict=True))) for name, of in HIDDEN.items()}
    steps = curve(found, "step")
    assert steps["mpi4py"] == pytest.approx(both)
    assert steps["backward alone"] == dict.fromkeys(BUCKETS, BACKWARD_US)
    assert [
        "16 MiB",
        "mpi4py",
        *(f"{time:.0f}" for time in (12500 - 1875, BACKWARD_US)),
        f"{both[best]:.0f}",
        "61 % (best)",
    ] in (found.values[0].rows)


def test_buckets_says_which_sizes_next_to_the_best_are_as_good() -> None:
    found = told(whole())["buckets"]
    times = {size: averaging_us("gloo", size) for size in BUCKETS}
    assert min(times, key=lambda size: times[size]) == 16 * MIB
    good = [size for size in BUCKETS if times[size] <= 1.1 * times[16 * MIB]]
    assert good == [16 * MIB]
    assert found.sentences[1] == "Gradients of gpt2 over gloo: averaged in 42500 us in buckets of 16 MiB, the best."
    near = [
        {**one, "averaging_us": 42600.0} if one["bucket_bytes"] < 16 * MIB else one for one in bucket_entries(("gloo",))
    ]
    (text,) = told(whole(sections={"buckets": near}))["buckets"].sentences
    assert text.endswith("in buckets of 16 MiB, the best; as good are sizes from 1 MiB to 16 MiB.")
    near[0]["averaging_us"], near[1]["averaging_us"] = 42600.0, 90000.0  # good again below what is not
    (text,) = told(whole(sections={"buckets": near}))["buckets"].sentences
    assert text.endswith("in buckets of 16 MiB, the best.")
    assert curve(found, "time")["gloo"] == pytest.approx(times)


def test_a_step_is_its_operations_one_after_the_other() -> None:
    times = {
        "mpi4py": {"tensor": 3.0, "data": 5.0, "pipeline": 7.0},
        "gloo": {"tensor": 6.0, "data": 10.0, "pipeline": 14.0},
    }
    found = told(whole(sections={"workloads": workload_entries(times)}))["workloads"]
    layers, hidden = TRANSFORMERS["gpt2"].layers // 2, TRANSFORMERS["gpt2"].hidden
    sums, handed = 4 * BATCH * layers, 2 * BATCH
    step, layer = (bars for bars in found.figures if isinstance(bars, Bars) and bars.unit == "ms")
    assert [row.name for row in step.rows] == ["mpi4py", "gloo"]
    assert step.rows[0].values == pytest.approx([sums * 3.0 / 1e3, layers * 5.0 / 1e3, handed * 7.0 / 1e3])
    assert layer.rows[1].values == pytest.approx([4 * BATCH * 6.0 / 1e3, 10.0 / 1e3])
    sent = found.figures[-1]
    assert isinstance(sent, Bars)
    activations, gradients = 2 * 1024 * hidden, 2 * ((12 * hidden**2 + 13 * hidden) // 2)
    megabytes = [sums * activations / 1e6, layers * gradients / 1e6, handed * activations / 1e6]
    assert [row.values[0] for row in sent.rows] == pytest.approx(megabytes)
    total = sums * 3.0 + layers * 5.0 + handed * 7.0
    assert (
        f"they take {total / 1e3:.3g} ms with mpi4py, the shortest; tensor parallelism has {sums * 3 / total:.0%} of it"
        in (found.sentences[1])
    )
    assert found.sentences[2].endswith(": 2 times as long with gloo.")


def test_a_step_without_layers_says_nothing_of_them() -> None:
    (entry,) = workload_entries({"mpi4py": {"tensor": 3.0, "data": 5.0, "pipeline": 7.0}})
    entry["kinds"] = [one for one in entry["kinds"] if one["kind"] == "pipeline"]
    found = told(whole(sections={"workloads": [entry]}))["workloads"]
    assert found.sentences[1].endswith(
        f"they take {2 * BATCH * 7 / 1e3:.3g} ms with mpi4py; pipeline parallelism has 100% of it."
    )
    assert [one.name for one in found.figures] == ["run1-workload1-step", "run1-workload1-bytes"]


def test_stability_names_who_was_last_in_how_many_calls() -> None:
    found = told(whole())["stability"]
    late = f"rank {LATE} on host node3"
    assert any(
        f"{late} came late, by 50.0 us in the median call, and was the last in {LAST}% of the calls" in text
        for text in found.sentences
    )
    assert any(
        "1 spike above 3 times the median; the longest was call 7 with 1050 us" in text for text in found.sentences
    )
    assert curve(found, "last")["mpi4py"] == pytest.approx(
        {rank: {LATE: LAST, 0: CALLS - LAST}.get(rank, 0) for rank in range(8)}
    )
    assert curve(found, "late")["gloo"] == pytest.approx({rank: 50.0 * (rank == LATE) for rank in range(8)})
    assert curve(found, "longest")["mpi4py"][7] == pytest.approx(1050.0)
    assert len(curve(found, "course")["mpi4py"]) == CALLS
    even = told(whole(sections={"stability": stability_entries(HOSTS, NAMES)}))["stability"]
    assert even.sentences[-1].endswith(
        "no host or rank is a straggler; rank 0 on host node1 was the last most often, in 100% of the calls (an equal "
        "share is 12%)."
    )
    drifting = stability_entries(HOSTS, NAMES, growing=1.0)
    times = [101 + 100 * call / CALLS + 900 * (call == 7) for call in range(CALLS)]
    drift = median(times[80:]) / median(times[:20]) - 1
    (first, *_) = told(whole(sections={"stability": drifting}))["stability"].sentences
    assert f"they drifted by {drift:+.0%}." in first


def test_the_start_names_the_rank_that_was_ready_last() -> None:
    found = told(whole())["start"]
    assert found.sentences == [
        f"Start: rank {LATE} on host node3 took the longest, 3.75 s: 3 s imports, 500 ms init, 250 ms groups.",
        f"Start: imports took 1 s (rank 0 on host node1) to 3 s (rank {LATE} on host node3).",
    ]
    assert curve(found, "start")["imports"] == {rank: 3.0 if rank == LATE else 1.0 for rank in range(8)}


def test_tables_that_a_section_tells_of_are_told_of_once() -> None:
    (row,) = (one for one in rows_of(HOSTS) if one["backend"] == "mpi4py" and one["size_bytes"] == 1024)
    rows = [row, *({**row, "collective": name} for name in ("gradients of gpt2", "repeated all_reduce"))]
    made = read(whole(rows=rows))
    assert [table.collective for table in made.tables] == ["all_reduce", "gradients of gpt2", "repeated all_reduce"]
    assert [table.collective for table in made.plain] == ["all_reduce"]
    assert len(read(recorded(HOSTS, rows)).plain) == 3


class Page(HTMLParser):
    """A page's tags, attributes, text, and the figures of its script."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.names: set[str] = set()
        self.drawn: list[str] = []
        self.parts: list[list[str]] = []
        self.feed(html.page([run], html.all_figures([run]), {}))
        self.text = "".join(text for tag, text in self.parts if tag != "script")
        self.data = json.loads(next(text for tag, text in self.parts if tag == "script"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.names |= {name for name, _ in attrs}
        self.drawn += [value or "" for name, value in attrs if name == "data-figure"]

    def handle_data(self, data: str) -> None:
        if self.tags:
            self.parts.append([self.tags[-1], data])


def test_text_from_hosts_and_models_stays_text() -> None:
    names = [f"{NASTY}{number}" for number in range(4)]

    def nasty(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: nasty(of, name) for name, of in value.items()}
        if isinstance(value, list | tuple):
            return [nasty(of) for of in value]
        return (
            f"{value}{NASTY}"
            if key in ("backend", "model", "what", "collective", "dtype", "op", "kind", "name") and value
            else value
        )

    made = all_sections(HOSTS, names, late=LATE)
    bad = Page(read(recorded(HOSTS, names=names, sections=nasty(made), start_up_of_ranks=starts(8, slow=LATE))))
    good = Page(read(whole()))
    assert sorted(bad.tags) == sorted(good.tags)
    assert bad.names == good.names
    assert f"rank {LATE} on host {names[2]}{NASTY} came late" in bad.text
    assert bad.data["run1-start"]["across"]["names"][LATE] == f"rank {LATE} on host {names[2]}"
    assert bad.drawn == [*bad.data]
    assert len([name for name in bad.drawn if "table" not in name]) == 2 + 2 + 1 + 3 + 4 + 1


def test_every_figure_of_a_section_is_a_picture_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    run = whole(names=(NASTY, "b", "c", "d"))
    write(tmp_path, [run])
    files = {path.name for path in (tmp_path / "plots").iterdir()}
    drawn = {one.name for one in html.all_figures([read(run)])}
    assert {f"{name}.{kind}" for name in drawn for kind in ("png", "svg")} <= files
    assert set(re.findall(r'href="plots/([^"]+)"', (tmp_path / "index.html").read_text())) == files
    for name, label in (
        ("overlap1-hidden", "hidden (% of averaging)"),
        ("workload1-step", "time of a step (ms, medians)"),
        ("efficiency1", "highest busbw (% of sendrecv's)"),
    ):
        assert label in (tmp_path / f"plots/run1-{name}.svg").read_text()
