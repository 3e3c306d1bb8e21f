"""The benchmark as users run it: under each MPI, under torchrun, alone; right, broken, refused."""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harness import Job, Mpi, Result, run_job
from hpccomm.bench import advice_report
from hpccomm.bench.compare import load
from hpccomm.bench.page.advice import advice
from hpccomm.bench.page.runs import read

BENCH = ("-m", "hpccomm.bench")
COLLECTIVES = ["all_reduce", "broadcast", "all_gather", "reduce_scatter", "reduce", "gather", "scatter", "all_to_all"]
COLLECTIVES += ["sendrecv", "barrier"]
RUN_BY_RING = ["ring", "tree", "ring", "ring", "tree", "tree", "tree", "pairwise", "", ""]
HIERARCHIES = ["hierarchical(mpi4py, mpi4py)", "hierarchical(mpi4py, gloo)"]
TIMES = ("time_us_median", "time_us_min", "time_us_p95", "time_us_max", "algbw_GBps")
# runs a program on a terminal, and passes on what it shows there
ON_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


def bench(mpi: Mpi, np: int, *options: str, **env: str) -> Result:
    argv = [mpi.python, *BENCH, "--budget", "120", *options]
    return run_job(mpi, np, argv, env=env, timeout_s=240)


def by_backend(path: Path) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for result in json.loads(path.read_text())["results"]:
        found.setdefault(result["backend"], []).append(result)
    return found


def table_rows(output: str) -> list[list[str]]:
    """Give the cells of every row of the table."""
    plain = re.sub(r"\x1b\[[0-9]*[mK]", "", output)
    lines = plain[plain.index("----") :].splitlines()[1:]
    return [line.split() for line in lines if re.match(r" *[0-9.]+ [KMG]?i?B ", line)]


def test_backends_side_by_side_on_pretended_nodes(mpi: Mpi, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    options = ("-b", "4", "-e", "64K", "-f", "128", "-n", "5", "--json", str(path))
    result = bench(mpi, 4, *options, HPCCOMM_RANKS_PER_NODE="2")
    assert result.returncode == 0, result
    assert result.stderr == "", result
    assert "4 ranks on 2 virtual nodes of 1 host (2 + 2)" in result.stdout
    assert "2(n-1)/n x size / time; n = 4 ranks: 1.5 x size / time" in result.stdout
    _, _, below = result.stdout.rstrip().partition("\nchecked: ")
    warnings = advice_report.lines(advice(read(load(path))))
    assert below.splitlines()[1:] == warnings
    assert any("on 2 cores" in line or "all ranks are on" in line for line in warnings), warnings
    assert [row[:3] for row in table_rows(result.stdout)] == [["4", "B", "5"], ["512", "B", "5"], ["64", "KiB", "5"]]
    found = by_backend(path)
    assert list(found) == ["mpi4py", "gloo", *HIERARCHIES]
    for results in found.values():
        assert [one["size_bytes"] for one in results] == [4, 512, 65536]
        for one in results:
            assert (one["wrong"], one["iterations"], one["error"]) == (0, 5, None)
            assert one["busbw_GBps"] == pytest.approx(1.5 * one["size_bytes"] / one["time_us_median"] / 1e3)
            wire = one["size_bytes"] if one["backend"] in HIERARCHIES else None  # 2(k-1)/k for two nodes
            assert one["wire_bytes_per_node"] == wire
    content = json.loads(path.read_text())
    assert content["complete"] is True
    environment = content["environment"]
    assert (environment["ranks"], environment["nodes"]) == (4, 2)
    assert environment["node_of_rank"] == [0, 0, 1, 1]
    assert environment["definitions"]["busbw"].keys() == {"all_reduce"}
    assert environment["not_built"] == {}
    assert environment["oversubscribed"] is (len(os.sched_getaffinity(0)) < 4)


def test_all_collectives_by_an_algorithm_each_with_a_table(one_mpi: Mpi, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    options = ("--collective", "all", "--algorithm", "ring", "-e", "64", "-n", "2", "--wide", "--csv", str(path))
    result = bench(one_mpi, 2, *options)
    assert result.returncode == 0, result
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    assert list(dict.fromkeys(one["collective"] for one in found)) == COLLECTIVES
    assert list(dict.fromkeys(one["backend"] for one in found)) == ["ring(mpi4py)", "ring(gloo)"]
    assert {one["wrong"] for one in found} == {"0"}
    runs = {one["collective"]: one["algorithm"] for one in found}
    assert runs == dict(zip(COLLECTIVES, RUN_BY_RING, strict=True))
    assert result.stdout.count("ring has no broadcast: tree is measured") == 2
    assert result.stdout.count("skew_us") == 1 + 2 * len(COLLECTIVES)
    for name in COLLECTIVES[:-1]:
        assert f"\n{name} " in result.stdout
    assert "\nbarrier\n" in result.stdout


def test_a_run_is_compared_with_an_older_one(one_mpi: Mpi, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    options = ("--backend", "mpi4py", "gloo", "-e", "64", "-n", "2")
    assert bench(one_mpi, 2, *options, "--json", str(old)).returncode == 0
    content = json.loads(old.read_text())
    for one in content["results"]:
        one["time_us_median"] *= 1e-6 if one["backend"] == "gloo" else 1e6
    old.write_text(json.dumps(content))
    result = bench(one_mpi, 2, *options, "--compare", str(old), "--json", str(new))
    assert result.returncode == 1, result
    shown = result.stdout[result.stdout.index("this run compared with") :]
    assert [line.split()[2] for line in shown.splitlines() if line.endswith(" SLOWER")] == ["gloo"] * 3
    assert "3 of 6 rows slower than 1.1 x old" in shown
    other = ("--collective", "broadcast", "--compare", str(old), "--json", str(tmp_path / "no.json"))
    strange = bench(one_mpi, 2, *other)
    assert strange.returncode == 2, strange
    assert strange.stderr.count("collective broadcast here, all_reduce there") == 1, strange
    assert sorted(tmp_path.iterdir()) == [new, old]


def test_broken_backends_have_no_number_and_others_are_complete(mpi: Mpi, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    broken = ["faulty(mpi4py, wrong)", "faulty(mpi4py, raise, call=5)", "faulty(gloo, hang)"]
    options = ["-e", "64", "-n", "5", "--timeout", "4", "--json", str(path), "--backend", *broken, "nowhere"]
    result = bench(mpi, 2, *options, "mpi4py", "gloo")
    assert result.returncode == 1, result
    found = by_backend(path)
    assert list(found) == [*broken, "mpi4py", "gloo"]
    for name in broken:
        assert [[one[key] for key in TIMES] for one in found[name]] == [[None] * len(TIMES)] * 3
        assert all(one["error"] for one in found[name])
    assert [one["wrong"] for one in found[broken[0]]] == [2, 2, 2]
    for name in ("mpi4py", "gloo"):
        assert all(one[key] > 0 for one in found[name] for key in TIMES)
    rows = table_rows(result.stdout)
    assert [row.count("wrong") for row in rows] == [1, 1, 1]
    assert [row.count("failed") for row in rows] == [2, 0, 0]
    assert "not built: nowhere: build backend nowhere: no backend is called 'nowhere'" in result.stdout
    assert result.stdout.count("a fault put") == 1
    assert json.loads(path.read_text())["complete"] is True
    assert "WRONG: A faulty(mpi4py, wrong) at 4 B, 16 B, 64 B" in result.stdout


def test_every_row_shows_the_backend_that_was_fallen_back_to(one_mpi: Mpi, tmp_path: Path) -> None:
    path, backend = tmp_path / "out.json", "failover(faulty(mpi4py, raise, call=12), gloo)"
    result = bench(one_mpi, 2, "-b", "4", "-e", "64", "-n", "5", "--json", str(path), "--backend", backend, "gloo")
    assert result.returncode == 0, result
    found = by_backend(path)
    assert [one["fell_back"] for one in found["gloo"]] == [None] * 3
    texts = [one["fell_back"] for one in found[backend]]
    assert texts[0] is None
    assert texts[1] == texts[2]
    assert "from faulty(mpi4py, raise, call=12) to gloo at call 12: rank 1: " in texts[2]
    assert result.stdout.count(" fell back: from ") == 2, result


@pytest.mark.parametrize(
    ("options", "reason"),
    [(("-q",), "unrecognized arguments: -q"), (("--backend", "ring(gloo"), "ends where ',' or ')' is expected")],
)
def test_bad_options_are_told_once(one_mpi: Mpi, options: Sequence[str], reason: str) -> None:
    result = bench(one_mpi, 3, *options)
    assert result.returncode == 2, result
    assert result.stderr.count(reason) == 1, result
    assert result.stdout == "", result


def test_file_that_cannot_be_written_is_a_bad_option(mpi: Mpi, tmp_path: Path) -> None:
    result = bench(mpi, 2, "--json", str(tmp_path / "no folder" / "out.json"), "-e", "4", "-n", "1")
    assert result.returncode == 2, result
    assert result.stderr.count("--json") == 1, result
    assert "time_us " not in result.stdout


def test_progress_is_shown_where_the_launcher_has_a_terminal(mpi: Mpi) -> None:
    command = mpi.command(2, [mpi.python, *BENCH, "-e", "4", "-n", "1"])
    result = Job([sys.executable, "-c", ON_TERMINAL, *command], env=mpi.environment()).wait(60)
    assert result.returncode == 0, result
    assert "\rstarting 2 ranks ..." in result.stdout
    assert result.stdout.count("\x1b[1m") > 0
    assert len(table_rows(result.stdout)) == 1


def test_under_torchrun(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    mpi = Mpi("none", Path(sys.prefix))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    options = ["--collective", "reduce_scatter", "-d", "double", "-e", "1K", "-f", "16", "-n", "3", "--budget", "60"]
    result = Job([mpi.python, *launcher, *BENCH, *options, "--json", str(path)], env=mpi.environment()).wait(120)
    assert result.returncode == 0, result
    found = by_backend(path)
    assert list(found) == ["gloo"]
    assert [one["size_bytes"] for one in found["gloo"]] == [16, 64, 1024]
    assert all(one["busbw_GBps"] == pytest.approx(one["algbw_GBps"] / 2) for one in found["gloo"])
    environment = json.loads(path.read_text())["environment"]
    assert (environment["launcher"], environment["mpi"]) == ("torchrun", "none")


def test_alone_there_is_no_busbw(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    mpi = Mpi("none", Path(sys.prefix))
    options = ["--backend", "gloo", "-e", "1M", "-f", "512", "--budget", "30", "--progress", "on", "--json", str(path)]
    result = Job([mpi.python, *BENCH, *options], env=mpi.environment()).wait(60)
    assert result.returncode == 0, result
    rows = table_rows(result.stdout)
    assert [row[:2] for row in rows] == [["4", "B"], ["2", "KiB"], ["1", "MiB"]]
    assert {row[-1] for row in rows} == {"-"}
    (results,) = by_backend(path).values()
    assert [one["busbw_GBps"] for one in results] == [None] * 3
    assert all(one["algbw_GBps"] > 0 and 5 <= one["iterations"] <= 50 for one in results)
    assert result.stderr.startswith("\rstarting 1 rank ...")
    assert result.stderr.endswith("\x1b[K")
