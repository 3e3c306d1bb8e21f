"""Table and JSON made from rows that nobody measured."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpccomm.bench import report
from hpccomm.bench.environment import Environment, hosts, placement
from hpccomm.bench.metrics import Times, definitions
from hpccomm.bench.record import Record, entries
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.errors import OptionError
from hpccomm.topology import Topology

HIERARCHY = "hierarchical(mpi4py, gloo, by=4)"
SIZES = (4, 1024, 65536, 1 << 20)
FACTOR = 1.5


def measured(backend: str, median_us: float) -> Cell:
    return Cell(backend, State.MEASURED, Times(5, median_us, median_us / 2, median_us * 2, median_us * 3), 0)


def row(size: int, *cells: Cell) -> Row:
    return Row(size, cells)


def table(*backends: str, sizes: tuple[int, ...] = SIZES) -> report.Layout:
    return report.Layout(backends, sizes)


def environment(**changed: Any) -> Environment:
    topology = Topology(0, (0, 0), (0, 0), ("n1",))
    cores = (frozenset({0, 1}),) * 2
    made = Environment(
        command_line="python -m hpccomm.bench",
        ranks=2,
        nodes=1,
        topology=str(topology),
        hosts=hosts(topology, cores),
        placement=placement(topology, cores),
        launcher="a launcher",
        mpi="An MPI 1.2.3, thread level multiple",
        torch="2.14",
        threads=1,
        python="3.11",
        hpccomm="0.1",
        date="2024-02-29T12:00:00+00:00",
    )
    return replace(made, **changed)


@pytest.mark.parametrize(
    ("gbps", "expected"),
    [
        (None, "-"),
        (7.9e-7, "8e-07"),
        (0.00099, "0.0010"),
        (0.0123, "0.012"),
        (0.999, "1.00"),
        (12.34, "12.3"),
        (456.7, "457"),
        (12345.0, "12345"),
    ],
)
def test_rates_fit_their_column_and_are_never_zero(gbps: float | None, expected: str) -> None:
    layout = table("gloo")
    cell = measured("gloo", 1000 * FACTOR * 10**6 / gbps / 10**6 if gbps else 1.0)
    (line,) = report.row_lines(row(10**6, cell), layout, FACTOR if gbps else None)
    assert line.split()[-1] == expected


def test_columns_are_headed_by_expressions_that_fit() -> None:
    lines = report.head(table("mpi4py", "gloo"))
    assert lines == [
        "",
        "                      mpi4py             gloo",
        "  size reps  time_us   busbw  time_us   busbw",
        "------ ---- ---------------- ----------------",
    ]
    first = row(65536, measured("mpi4py", 12.34), measured("gloo", 5678.0))
    assert report.row_lines(first, table("mpi4py", "gloo"), FACTOR) == ["64 KiB    5     12.3*   7.97     5678   0.017"]


def test_columns_are_headed_by_letters_where_an_expression_is_too_long() -> None:
    lines = report.head(table("mpi4py", HIERARCHY))
    assert lines[1:3] == ["A  mpi4py", f"B  {HIERARCHY}"]
    assert lines[3].split() == ["A", "B"]


def test_four_backends_fit_into_80_columns_and_six_into_120() -> None:
    for backends, width in ((4, 80), (6, 120)):
        names = [f"{HIERARCHY}{number}" for number in range(backends)]
        layout = table(*names)
        cells = [measured(name, 12_345_678.0) for name in names]
        lines = report.head(layout)[1 + backends :] + report.row_lines(row(1 << 20, *cells), layout, FACTOR)
        assert len({len(line) for line in lines}) == 1
        assert len(lines[0]) <= width


def test_one_rank_has_no_busbw_and_one_backend_no_best() -> None:
    (line,) = report.row_lines(row(4, measured("gloo", 3.0)), table("gloo"), None)
    assert line.split() == ["4", "B", "5", "3.00", "-"]


def test_what_failed_has_no_number_and_its_reason_once() -> None:
    layout = table("a", "b", "c")
    first = row(
        4, Cell("a", State.WRONG, wrong=2, error="2 wrong"), Cell("b", State.FAILED, error="broke"), measured("c", 9.0)
    )
    second = row(
        1024, Cell("a", State.WRONG, wrong=3, error="3 wrong"), Cell("b", State.DROPPED, error="x"), measured("c", 9.0)
    )
    assert report.row_lines(first, layout, FACTOR) == [
        "   4 B    5    wrong       -   failed       -     9.00   7e-04",
        "  a: 2 wrong",
        "  b: broke",
    ]
    assert report.row_lines(second, layout, FACTOR, before=[first]) == [
        " 1 KiB    5    wrong       -        -       -     9.00   0.171"
    ]
    text = "\n".join(report.footer([first, second], layout, checked=True, left_out=None))
    assert "WRONG: a at 4 B, 1 KiB" in text
    assert "FAILED: b at 4 B\n" in text


def test_footer_says_what_was_left_out_and_whether_it_was_checked() -> None:
    rows = [row(4, measured("a", 1.0), measured("b", 2.0))]
    lines = report.footer(rows, table("a", "b"), checked=False, left_out="64 MiB; too long")
    assert lines == ["", "fastest: a at 4 B", "left out: 64 MiB; too long", "not checked (-c 0): results may be wrong"]
    assert report.footer(rows, table("a", "b"), checked=True, left_out=None)[-1].startswith("checked: ")


@pytest.mark.parametrize(
    ("winners", "expected"),
    [
        ("aaaa", ["fastest: a from 4 B to 1 MiB"]),
        ("abbb", ["fastest: a at 4 B, b from 1 KiB to 1 MiB"]),
        ("ab-b", ["fastest: a at 4 B, b from 1 KiB to 1 MiB"]),
        ("----", []),
    ],
)
def test_fastest_backend_by_ranges_of_sizes(winners: str, expected: list[str]) -> None:
    rows = []
    for size, best in zip(SIZES, winners, strict=True):
        cells = [measured(name, 1.0 if name == best else 2.0) for name in "ab"]
        rows.append(row(size, *cells) if best != "-" else row(size, cells[0], Cell("b", State.DROPPED)))
    assert report.fastest(rows, table("a", "b")) == expected


def test_fastest_backend_that_changes_often_is_counted() -> None:
    sizes = tuple(4**power for power in range(1, 8))
    cells = {best: [measured(name, 1.0 if name == best else 2.0) for name in "ab"] for best in "ab"}
    rows = [row(size, *cells["ab"[place % 2]]) for place, size in enumerate(sizes)]
    assert report.fastest(rows, table("a", "b", sizes=sizes)) == ["fastest: a at 4, b at 3 of 7 sizes"]


def test_header_says_what_the_figures_depend_on_and_mean() -> None:
    meanings = definitions("2(n-1)/n", 2, 1.0)
    text = "\n".join(report.header("all_reduce sum of float32, in place", environment(), meanings, table("a")))
    for part in ("all_reduce", "2 ranks on 1 node: n1 0-1; 2 cores a rank, shared", "a launcher; An MPI 1.2.3"):
        assert part in text
    for part in ("torch 2.14 with 1 thread a rank", "Python 3.11", "microseconds", "maximum over ranks", "2(n-1)/n"):
        assert part in text
    assert "OVERSUBSCRIBED" not in text
    assert text.isascii()
    assert "\x1b" not in text


def test_banner_names_the_hosts_with_more_ranks_than_cores() -> None:
    nodes = (0, 0, 0, 1, 1)
    topology = Topology(0, nodes, nodes, ("n1", "n2"))
    cores = (frozenset({0, 1}),) * 3 + (frozenset({4}), frozenset({5}))
    crowded = environment(hosts=hosts(topology, cores))
    assert [host.is_oversubscribed for host in crowded.hosts] == [True, False]
    assert crowded.oversubscribed == "OVERSUBSCRIBED: 3 ranks on 2 cores of n1; times include waiting for a core"
    assert placement(topology, cores) == "1 to 2 cores a rank, shared with other ranks"
    assert placement(topology, tuple(frozenset({core}) for core in range(5))) == "1 core a rank, not shared"
    bold = replace(table("a"), bold=True)
    assert report.header("", crowded, definitions("1", 5, 1.0), bold)[-1] == f"\x1b[1m{crowded.oversubscribed}\x1b[0m"


def test_backends_that_were_not_built_have_a_line_each() -> None:
    assert report.not_built({"nccl": "no GPU", "x": "no such backend"}) == [
        "  not built: nccl: no GPU",
        "  not built: x: no such backend",
    ]


WHAT = {"collective": "all_reduce", "dtype": "float32", "op": "sum"}


def test_json_is_valid_after_every_row_and_numbers_are_right(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    head = entries(environment(), definitions("2(n-1)/n", 4, FACTOR))
    record = Record(path, head, what=WHAT, factor=FACTOR)
    assert json.loads(path.read_text())["results"] == []
    record.add(row(10**6, measured("a", 1000.0), Cell("b", State.WRONG, wrong=7, error="7 wrong")))
    content = json.loads(path.read_text())
    assert content["results"][0] == WHAT | {
        "backend": "a",
        "size_bytes": 10**6,
        "iterations": 5,
        "time_us_median": 1000.0,
        "time_us_min": 500.0,
        "time_us_p95": 2000.0,
        "time_us_max": 3000.0,
        "algbw_GBps": 1.0,
        "busbw_GBps": 1.5,
        "wrong": 0,
    }
    numbers = ("iterations", "time_us_median", "time_us_min", "time_us_p95", "time_us_max", "algbw_GBps", "busbw_GBps")
    assert content["results"][1] == WHAT | dict.fromkeys(numbers) | {
        "backend": "b",
        "size_bytes": 10**6,
        "wrong": 7,
        "error": "7 wrong",
    }
    record.add(row(4, Cell("a", State.FAILED, error="broke"), Cell("b", State.DROPPED, error="failed before")))
    results = json.loads(path.read_text())["results"]
    assert [result["error"] for result in results[2:]] == ["broke", "failed before"]
    assert [result["wrong"] for result in results[2:]] == [None, None]
    assert list(tmp_path.iterdir()) == [path]


def test_json_has_null_where_one_rank_has_no_busbw(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    Record(path, {}, what=WHAT, factor=None).add(row(4, measured("a", 1.0)))
    (result,) = json.loads(path.read_text())["results"]
    assert result["busbw_GBps"] is None
    assert result["algbw_GBps"] == pytest.approx(0.004)


def test_json_environment_is_complete() -> None:
    found = json.loads(json.dumps(entries(environment(), {"busbw": "text"})))
    assert found["hosts"] == [{"name": "n1", "ranks": 2, "cores": 2}]
    wanted = {"hosts", "ranks", "nodes", "placement", "launcher", "mpi", "torch", "python", "date", "oversubscribed"}
    assert wanted | {"command_line", "definitions"} <= found.keys()
    assert found["oversubscribed"] is False


def test_json_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError) as refused:
        Record(tmp_path / "no folder" / "out.json", {}, what=WHAT, factor=None)
    assert "--json" in refused.value.asked
