"""Two runs side by side: which rows are pairs, which are slower, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT
from hpccomm.bench.compare import Pair, Recorded, compare, load, refuse_strangers
from hpccomm.bench.compare_report import differences, lines, verdict
from hpccomm.bench.text import strong
from hpccomm.errors import OptionError

ALL_REDUCE = {"collective": "all_reduce", "place": "in", "dtype": "float32", "op": "sum", "ranks": 4}
BROADCAST = {**ALL_REDUCE, "collective": "broadcast", "op": None}


def result(backend: str, size: int, time_us: float | None, what: dict[str, Any] = ALL_REDUCE) -> dict[str, Any]:
    return {**what, "backend": backend, "size_bytes": size, "time_us_median": time_us}


def run(*results: dict[str, Any], name: str = "old.json", **environment: Any) -> Recorded:
    return Recorded(name, {"date": "2024-02-29", "torch": "2.14", **environment}, results)


@pytest.mark.parametrize(
    ("old_us", "new_us", "ratio", "mark"),
    [
        (10.0, 11.0, 1.1, ""),
        (10.0, 11.1, 1.11, "SLOWER"),
        (10.0, 1.0, 0.1, ""),
        (10.0, None, None, "FAILED"),
        (None, 10.0, None, ""),
        (None, None, None, ""),
    ],
)
def test_a_row_is_slower_beyond_the_tolerance(
    old_us: float | None, new_us: float | None, ratio: float | None, mark: str
) -> None:
    pair = Pair({}, old_us, new_us, tolerance=0.1)
    assert pair.ratio == (None if ratio is None else pytest.approx(ratio))
    assert pair.mark == mark


def test_rows_are_paired_by_what_was_measured_and_the_rest_is_listed() -> None:
    old = [result("gloo", 4, 1.0), result("mpi4py", 4, 2.0), result("gloo", 4, 3.0, BROADCAST)]
    new = [result("mpi4py", 4, 5.0), result("mpi4py", 16, 6.0), result("gloo", 4, 7.0, BROADCAST)]
    found = compare(run(*old), run(*new), 1.0)
    assert [(pair.old_us, pair.new_us) for pair in found.pairs] == [(2.0, 5.0), (3.0, 7.0)]
    assert (found.only_old, found.only_new) == ([old[0]], [new[1]])
    assert found.fails
    assert not compare(run(*old), run(*new), 2.0).fails


def test_nothing_compared_is_a_failure() -> None:
    found = compare(run(result("a", 4, 1.0)), run(result("b", 4, 1.0)), 100.0)
    assert found.fails
    assert verdict(found) == "no row has a partner in the other run"


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({"collective": "broadcast"}, "collective broadcast here, all_reduce there"),
        ({"dtype": "int8"}, "dtype int8 here, float32 there"),
        ({"ranks": 2, "place": "out"}, "place out here, in there; ranks 2 here, 4 there"),
        ({"op": None}, "op none here, sum there"),
    ],
)
def test_runs_of_something_else_are_refused_with_what_differs(changed: dict[str, Any], found: str) -> None:
    new = result("gloo", 4, 1.0, ALL_REDUCE | changed)
    with pytest.raises(OptionError) as refused:
        refuse_strangers(run(result("gloo", 4, 1.0)), "this run", [new])
    assert refused.value.found == found


def test_runs_with_a_table_in_common_are_not_refused_and_empty_ones_are() -> None:
    refuse_strangers(run(result("a", 4, 1.0)), "this run", [BROADCAST, ALL_REDUCE])
    with pytest.raises(OptionError, match="this run") as refused:
        refuse_strangers(run(), "this run", [ALL_REDUCE])
    assert refused.value.found == "the old one has no results"


def test_lines_show_both_times_and_mark_what_is_slower() -> None:
    old = run(result("mpi4py", 4, 2.0), result("gloo", 65536, 1000.0), result("gloo", 4, 1.0, BROADCAST))
    new = run(
        result("mpi4py", 4, 5.0), result("gloo", 65536, 1010.0), result("nccl", 4, 1.0), name="new.json", torch="2.15"
    )
    shown = lines(compare(old, new, 0.1))
    assert shown == [
        "",
        strong("new.json compared with old.json of 2024-02-29"),
        "  differs: torch: 2.14, now 2.15",
        "",
        "all_reduce sum of float32, in place, 4 ranks",
        "  size backend   old_us   new_us  ratio",
        "------ ------- -------- -------- ------",
        strong("   4 B mpi4py      2.00     5.00   2.50 SLOWER"),
        "64 KiB gloo        1000     1010   1.01",
        "",
        "only in old.json: broadcast of float32, in place, 4 ranks: gloo at 4 B",
        "only in new.json: all_reduce sum of float32, in place, 4 ranks: nccl at 4 B",
        strong("1 of 2 rows slower than 1.1 x old"),
    ]


def test_failures_are_counted_and_equal_environments_differ_in_nothing() -> None:
    found = compare(run(result("a", 4, 1.0)), run(result("a", 4, None)), 0.1)
    assert verdict(found) == "0 of 1 rows slower than 1.1 x old, 1 without a result now"
    assert differences(run(), run()) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (None, "No such file"),
        ("{", "Expecting"),
        ("[]", "list indices"),
        ('{"environment": {}}', "no 'results'"),
        ('{"environment": {}, "results": [{}]}', "no 'collective'"),
        (json.dumps({"environment": {}, "results": [result("a", 4, "1")]}), "time_us_median is '1'"),  # type: ignore[arg-type]
        (json.dumps({"environment": {}, "results": [{**result("a", 4, 1.0), "backend": ["a"]}]}), "a result of"),
    ],
)
def test_files_that_are_no_results_are_refused(tmp_path: Path, text: str | None, found: str) -> None:
    path = tmp_path / "old.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(OptionError) as refused:
        load(path)
    assert str(path) in refused.value.asked
    assert found in refused.value.found


@pytest.mark.parametrize(
    ("new_us", "tolerance", "status", "shown"),
    [(12.0, "10%", 1, "SLOWER"), (12.0, "30%", 0, "0 of 1 rows slower"), (None, "30%", 1, "FAILED")],
)
def test_two_files_are_compared_without_a_run(
    tmp_path: Path, new_us: float | None, tolerance: str, status: int, shown: str
) -> None:
    for name, time_us in (("old", 10.0), ("new", new_us)):
        content = {"environment": {}, "results": [result("gloo", 4, time_us)]}
        (tmp_path / name).write_text(json.dumps(content))
    command = [sys.executable, "-m", "hpccomm.bench", "--tolerance", tolerance, "--compare"]
    ran = subprocess.run(
        [*command, tmp_path / "old", tmp_path / "new"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (status, "")
    assert shown in ran.stdout
    missing = subprocess.run(
        [*command, tmp_path / "old", tmp_path / "none"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert missing.returncode == 2
    assert "No such file" in missing.stderr
