"""JSON and CSV made from rows that nobody measured."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.files import COLUMNS, Record, results
from hpccomm.bench.metrics import Times
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.tables import WHAT, Table
from hpccomm.errors import OptionError
from test_bench_report import environment

TIMES = Times(5, 1000.0, 500.0, 2000.0, 2500.0, 3000.0, 40.0)
GOOD = Cell("ring(a, by=2)", State.MEASURED, TIMES, 0, algorithm="ring", wire_bytes=10**6)
FELL = replace(GOOD, fell_back=("from a to b at call 1", "from b to c at call 2"))
WRONG = Cell("b", State.WRONG, wrong=7, error='7 wrong,\n"quoted"')
DROPPED = Cell("b", State.DROPPED, error="failed before")
SUM = Table(COLLECTIVES["all_reduce"], 4, "float32", "sum", "in")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_results_have_all_columns_and_right_numbers() -> None:
    good, wrong = results(Row(10**6, (FELL, WRONG)), SUM)
    assert tuple(good) == tuple(wrong) == COLUMNS
    assert good == {
        "collective": "all_reduce",
        "place": "in",
        "dtype": "float32",
        "op": "sum",
        "ranks": 4,
        "backend": "ring(a, by=2)",
        "algorithm": "ring",
        "size_bytes": 10**6,
        "iterations": 5,
        "time_us_median": 1000.0,
        "time_us_min": 500.0,
        "time_us_p95": 2000.0,
        "time_us_p99": 2500.0,
        "time_us_max": 3000.0,
        "skew_us_median": 40.0,
        "algbw_GBps": 1.0,
        "busbw_GBps": 1.5,
        "wire_bytes_per_node": 10**6,
        "wire_GBps_per_node": 1.0,
        "wrong": 0,
        "error": None,
        "fell_back": "from a to b at call 1; from b to c at call 2",
    }
    known = {**SUM.what, "backend": "b", "size_bytes": 10**6, "wrong": 7, "error": WRONG.error}
    assert wrong == dict.fromkeys(COLUMNS) | known


@pytest.mark.parametrize(
    ("collective", "count", "root"),
    [("all_reduce", 250, "-1"), ("all_gather", 62, "-1"), ("reduce_scatter", 62, "-1"), ("broadcast", 250, "0")],
)
@pytest.mark.parametrize(("place", "other"), [("in", "out"), ("out", "in")])
def test_json_has_the_keys_of_nccl_tests_too(collective: str, count: int, root: str, place: str, other: str) -> None:
    record = Record({})
    op = "sum" if COLLECTIVES[collective].reduces else None
    table = Table(COLLECTIVES[collective], 4, "float32", op, place)
    record.add(results(Row(1000, (GOOD, WRONG)), table))
    record.add(results(Row(2000, (GOOD,)), table))
    content = json.loads(record.text(complete=True))
    good, wrong, last = content["results"]
    factor = COLLECTIVES[collective].bus_factor(4)
    assert factor is not None
    assert [good[name] for name in ("size", "count", "type", "redop", "root", "actual_iterations")] == [
        1000,
        count,
        "float",
        op or "none",
        root,
        5,
    ]
    rates = {"alg_bw": pytest.approx(0.001), "bus_bw": pytest.approx(0.001 * factor)}
    assert good[f"{place}_of_place".replace("in_of", "in")] == {"time": 1000.0, **rates, "nwrong": 0}
    assert good[f"{other}_of_place".replace("in_of", "in")] is None
    assert wrong["in_place"] is None is wrong["out_of_place"]
    assert last["size"] == 2000
    assert content["out_of_bounds"] == {"count": 1, "okay": False}
    mean = content["average_bus_bandwidth"]
    assert mean == {"bandwidth": pytest.approx(0.0015 * factor), "okay": "unchecked"}


def test_a_run_without_data_has_none_of_the_keys_of_nccl_tests() -> None:
    record = Record({})
    record.add(results(Row(0, (Cell("a", State.MEASURED, TIMES, 0),)), Table(COLLECTIVES["barrier"], 4, "float32")))
    content = json.loads(record.text(complete=True))
    assert content["results"] == record.results
    assert content["average_bus_bandwidth"]["bandwidth"] == 0.0


def test_there_is_no_rate_without_data_and_no_busbw_with_one_rank() -> None:
    barrier = Table(COLLECTIVES["barrier"], 4, "float32")
    assert barrier.what == dict.fromkeys(WHAT) | {"collective": "barrier", "ranks": 4}
    (result,) = results(Row(0, (Cell("a", State.MEASURED, TIMES, 0),)), barrier)
    assert [result[name] for name in COLUMNS if "GBps" in name] == [None] * 3
    assert result["time_us_median"] == 1000.0
    (result,) = results(Row(4, (Cell("a", State.MEASURED, TIMES, 0),)), replace(SUM, ranks=1))
    assert (result["busbw_GBps"], result["algbw_GBps"]) == (None, pytest.approx(4e-6))


def test_both_files_are_valid_after_every_row_and_say_the_same(tmp_path: Path) -> None:
    json_path, csv_path = tmp_path / "out.json", tmp_path / "out.csv"
    csv_path.write_text("an older run\n")
    record = Record({"ranks": 4}, json_path=json_path, csv_path=csv_path)
    assert json.loads(json_path.read_text()) == {"environment": {"ranks": 4}, "complete": False, "results": []}
    assert csv_path.read_text() == ",".join(COLUMNS) + "\n"
    for cells in ((GOOD, WRONG), (GOOD, DROPPED)):
        record.add(results(Row(10**6, cells), SUM))
        content = json.loads(json_path.read_text())
        assert [{name: one[name] for name in COLUMNS} for one in content["results"]] == record.results
        assert content["complete"] is False
        written = [{name: "" if one[name] is None else str(one[name]) for name in COLUMNS} for one in record.results]
        assert rows_of(csv_path) == written
    record.finish()
    assert json.loads(json_path.read_text()) == {**content, "complete": True}
    assert sorted(tmp_path.iterdir()) == [csv_path, json_path]


def test_no_file_is_written_where_none_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record = Record({}, json_path=None, csv_path=None)
    record.add(results(Row(4, (GOOD,)), SUM))
    record.finish()
    assert list(tmp_path.iterdir()) == []
    assert len(record.results) == 1


def test_json_environment_is_complete() -> None:
    found = json.loads(json.dumps(environment().entries()))
    assert found["hosts"] == [{"name": "n1", "ranks": 2, "cores": 2}]
    wanted = {"hosts", "ranks", "nodes", "placement", "launcher", "mpi", "torch", "python", "date", "oversubscribed"}
    assert wanted | {"command_line"} <= found.keys()
    assert found["oversubscribed"] is False


@pytest.mark.parametrize("option", ["json", "csv"])
def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path, option: str) -> None:
    paths: dict[str, Any] = {"json_path": None, "csv_path": None}
    paths[f"{option}_path"] = tmp_path / "no folder" / "out"
    with pytest.raises(OptionError) as refused:
        Record({}, **paths)
    assert f"--{option}" in refused.value.asked
