"""The least bus bandwidth, and the suites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness import Mpi, run_job
from hpccomm.bench import gate, suites
from hpccomm.bench.arguments import parse

WHAT = {"collective": "all_reduce", "place": "in", "dtype": "float32", "op": "sum", "ranks": 4}


def result(backend: str, size: int, gbps: float | None, **changed: Any) -> dict[str, Any]:
    return {**WHAT, "backend": backend, "size_bytes": size, "busbw_GBps": gbps, **changed}


RESULTS = [
    result("gloo", 4, 0.001),
    result("gloo", 1024, 2.0),
    result("gloo", 4096, None),
    result("mpi4py", 4, None),
    result("mpi4py", 1024, 3.0),
    result("gloo", 4, 1.0, collective="broadcast", op=None),
    result("gloo", 0, None, collective="barrier", op=None, place=None),
]


@pytest.mark.parametrize(
    ("least", "below"),
    [
        (1.0, []),
        (1.5, ["gloo: busbw of broadcast of float32, in place: 1 GB/s at 4 B"]),
        (2.5, ["gloo: busbw of all_reduce sum of float32, in place: 2 GB/s at 1 KiB", "gloo: busbw of broadcast"]),
    ],
)
def test_the_highest_busbw_of_each_backend_and_table_counts(least: float, below: list[str]) -> None:
    shown = gate.lines(RESULTS, least)
    assert gate.is_missed(RESULTS, least) is bool(below)
    assert len(shown) == 2 + len(below)
    assert all(text in line for text, line in zip(below, shown[1:], strict=False))
    assert f"{len(below)} of 3 below --min-busbw {least:g} GB/s" in shown[-1]


@pytest.mark.parametrize("results", [[], RESULTS[-1:], [result("gloo", 4, None)]])
def test_nothing_to_judge_is_a_failure(results: list[dict[str, Any]]) -> None:
    assert gate.is_missed(results, 1e-9)


@pytest.mark.parametrize("name", suites.SUITES)
def test_suites_are_options_with_a_purpose(name: str) -> None:
    assert parse(["--suite", name]) != parse([])
    assert len(suites.SUITES[name]) > 10


def test_the_start_is_measured_where_ranks_are_slow_to_come(one_mpi: Mpi, tmp_path: Path) -> None:
    path, late_s = tmp_path / "run.json", 2.0
    program = f"""if True:
        import os, runpy, sys, time
        time.sleep({late_s} * (os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "1"))
        sys.argv = ["bench", "--suite", "startup", "--backend", "mpi4py", "--json", {str(path)!r}]
        runpy.run_module("hpccomm.bench", run_name="__main__")
    """
    ended = run_job(one_mpi, 2, [one_mpi.python, "-c", program], timeout_s=120)
    assert ended.returncode == 0, ended
    times = json.loads(path.read_text())["environment"]["start_up"]
    assert times["imports_s"] > late_s
    assert min(times.values()) > 0
    assert f"{times['imports_s']:.2f} s imports" in ended.stdout


@pytest.mark.parametrize(("least", "status"), [("1e-9", 0), ("1e5", 1)])
def test_a_run_fails_below_the_least_busbw(one_mpi: Mpi, least: str, status: int) -> None:
    argv = [one_mpi.python, "-m", "hpccomm.bench", "--suite", "smoke", "--backend", "mpi4py", "--min-busbw", least]
    ended = run_job(one_mpi, 2, argv, timeout_s=120)
    assert ended.returncode == status, ended
    assert f"{2 * status} of 2 below --min-busbw" in ended.stdout
