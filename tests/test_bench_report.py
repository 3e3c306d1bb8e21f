"""Lines of text made from rows that nobody measured."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpccomm.bench import advice_report, report
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.environment import Environment
from hpccomm.bench.layout import Layout, format_rate
from hpccomm.bench.metrics import Times
from hpccomm.bench.page.advice.rule import Advice
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.tables import Table
from hpccomm.bench.text import WIDTH, plain, strong
from hpccomm.topology import Topology
from hpccomm.topology.cores import hosts, placement

HIERARCHY = "hierarchical(mpi4py, gloo, by=4)"
SIZES = (4, 1024, 65536, 1 << 20)
FACTOR = 1.5
TABLE = Table(COLLECTIVES["all_reduce"], 4, "float32", "sum", "in")


def measured(backend: str, median_us: float, *, wire_bytes: int | None = None) -> Cell:
    times = Times(5, median_us, median_us / 2, median_us * 2, median_us * 3, median_us * 4, median_us / 10)
    return Cell(backend, State.MEASURED, times, 0, wire_bytes=wire_bytes)


def row(size: int, *cells: Cell) -> Row:
    return Row(size, cells)


def head(*given: Any) -> list[str]:
    return [plain(line) for line in report.head(*given)]


def row_lines(*given: Any, **more: Any) -> list[str]:
    return [plain(line) for line in report.row_lines(*given, **more)]


def footer(*given: Any, **more: Any) -> list[str]:
    return [plain(line) for line in report.footer(*given, **more)]


def layout_of(*backends: str, sizes: tuple[int, ...] = SIZES, **changed: Any) -> Layout:
    return replace(Layout(backends, sizes, FACTOR), **changed)


def environment(**changed: Any) -> Environment:
    topology = Topology(0, (0, 0), (0, 0), ("n1",))
    cores = (frozenset({0, 1}),) * 2
    made = Environment(
        command_line="python -m hpccomm.bench",
        ranks=2,
        nodes=1,
        topology=str(topology),
        node_of_rank=topology.nodes,
        host_of_rank=topology.hosts,
        hosts=hosts(topology, cores),
        placement=placement(topology, cores),
        fewest_cores=2,
        networks={},
        network=None,
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
        (2e-6, "<.0001"),
        (0.000099, "<.0001"),
        (0.0001, "0.0001"),
        (0.00099, "0.0010"),
        (0.0123, "0.012"),
        (0.999, "1.00"),
        (12.34, "12.3"),
        (456.7, "457"),
        (12345.0, "12345"),
    ],
)
def test_rates_fit_their_column_and_are_never_zero(gbps: float | None, expected: str) -> None:
    assert format_rate(gbps) == expected
    cell = measured("gloo", 1000 * FACTOR / gbps if gbps else 1.0)
    (line,) = row_lines(row(10**6, cell), layout_of("gloo", factor=FACTOR if gbps else None))
    assert line.split()[-1] == expected


def test_columns_are_headed_by_expressions_that_fit() -> None:
    layout = layout_of("mpi4py", "gloo")
    assert report.legend(layout) == []
    assert head(TABLE, layout, ["gloo: a remark"]) == [
        "",
        "all_reduce sum of float32, in place",
        "busbw     GB/s = 2(n-1)/n x size / time; n = 4 ranks: 1.5 x size / time",
        "  gloo: a remark",
        "                      mpi4py             gloo",
        "  size reps  time_us   busbw  time_us   busbw",
        "------ ---- ---------------- ----------------",
    ]
    first = row(65536, measured("mpi4py", 12.34), measured("gloo", 5678.0))
    assert row_lines(first, layout) == ["64 KiB    5     12.3*   7.97     5678   0.017"]


def test_columns_are_headed_by_letters_where_an_expression_is_too_long() -> None:
    layout = layout_of("mpi4py", HIERARCHY)
    assert report.legend(layout) == ["", "A  mpi4py", f"B  {HIERARCHY}"]
    assert head(TABLE, layout)[-3].split() == ["A", "B"]


def test_wide_columns_show_skew_and_the_rate_between_nodes() -> None:
    layout = layout_of("gloo", HIERARCHY, wide=True)
    assert report.legend(layout) == []
    lines = head(TABLE, layout)
    assert "2(k-1)/k x size" in " ".join(lines)
    assert lines[-2].split() == ["size", "reps", *("time_us", "busbw", "skew_us", "wire") * 2]
    cells = [measured("gloo", 20.0), measured(HIERARCHY, 10.0, wire_bytes=1 << 20)]
    (line,) = row_lines(row(1 << 20, *cells), layout)
    assert line.split()[3:] == ["20.0", "78.6", "2.00", "-", "10.0*", "157", "1.00", "105"]
    (line,) = row_lines(row(1 << 20, Cell("gloo", State.DROPPED), cells[1]), layout)
    assert line.split()[3:7] == ["-"] * 4
    assert {len(line) for line in (line, *lines[-3:])} == {len(lines[-1])}


def test_four_backends_fit_into_80_columns_and_six_into_120() -> None:
    for backends, width in ((4, 80), (6, 120)):
        names = [f"{HIERARCHY}{number}" for number in range(backends)]
        layout = layout_of(*names)
        cells = [measured(name, 12_345_678.0) for name in names]
        lines = head(TABLE, layout)[3:] + row_lines(row(1 << 20, *cells), layout)
        assert len({len(line) for line in lines}) == 1
        assert len(lines[0]) <= width


def test_one_rank_has_no_busbw_and_one_backend_no_best() -> None:
    (line,) = row_lines(row(4, measured("gloo", 3.0)), layout_of("gloo", factor=None))
    assert line.split() == ["4", "B", "5", "3.00", "-"]


def test_what_failed_has_no_number_and_its_reason_once() -> None:
    layout = layout_of("a", "b", "c")
    first = row(
        4, Cell("a", State.WRONG, wrong=2, error="2 wrong"), Cell("b", State.FAILED, error="broke"), measured("c", 9.0)
    )
    second = row(
        1024, Cell("a", State.WRONG, wrong=3, error="3 wrong"), Cell("b", State.DROPPED, error="x"), measured("c", 9.0)
    )
    assert row_lines(first, layout) == [
        "   4 B    5    wrong       -   failed       -     9.00  0.0007",
        "  a: 2 wrong",
        "  b: broke",
    ]
    assert row_lines(second, layout, before=[first]) == [
        " 1 KiB    5    wrong       -        -       -     9.00   0.171"
    ]
    text = "\n".join(footer([first, second], layout, left_out=None))
    assert "WRONG: a at 4 B, 1 KiB" in text
    assert text.endswith("FAILED: b at 4 B")


def test_footer_says_what_was_left_out_and_the_last_line_whether_it_was_checked() -> None:
    rows = [row(4, measured("a", 1.0), measured("b", 2.0))]
    lines = footer(rows, layout_of("a", "b"), left_out="64 MiB; too long")
    assert lines == ["", "fastest: a at 4 B", "left out: 64 MiB; too long"]
    assert footer([row(4, measured("a", 1.0))], layout_of("a"), left_out=None) == []
    assert report.closing(checked=False) == ["", "not checked (-c 0): results may be wrong"]
    assert report.closing(checked=True)[-1].startswith("checked: ")


def test_a_warning_has_figure_reason_and_setting_and_those_alike_are_one() -> None:
    alike = [Advice(f"figure {number}", "a reason", "this " * 30 + "and that") for number in range(5)]
    lines = advice_report.lines([*alike[:2], Advice("another", "a reason", "nothing"), *alike[2:]])
    assert lines[0] == ""
    assert max(map(len, lines)) <= WIDTH
    first = f"warning figure 0; figure 1; figure 2; and 2 more. Why: a reason. Do: {alike[0].setting}. "
    assert " ".join(" ".join(lines).split()) == f"{first}warning another. Why: a reason. Do: nothing."
    assert [line[:10].strip() for line in lines if "warning" in line] == ["warning"] * 2
    (three,) = advice_report.lines([Advice(str(number), "why", "what") for number in range(3)])[1:]
    assert three == "warning   0; 1; 2. Why: why. Do: what."
    assert advice_report.lines([]) == []


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
    assert report.fastest(rows, layout_of("a", "b")) == expected


def test_fastest_backend_without_data_has_no_size() -> None:
    rows = [row(0, measured("a", 2.0), measured("b", 1.0))]
    assert report.fastest(rows, layout_of("a", "b", sizes=(0,), factor=None)) == ["fastest: b"]


def test_fastest_backend_that_changes_often_is_counted() -> None:
    sizes = tuple(4**power for power in range(1, 8))
    cells = {best: [measured(name, 1.0 if name == best else 2.0) for name in "ab"] for best in "ab"}
    rows = [row(size, *cells["ab"[place % 2]]) for place, size in enumerate(sizes)]
    assert report.fastest(rows, layout_of("a", "b", sizes=sizes)) == ["fastest: a at 4, b at 3 of 7 sizes"]


def test_header_says_what_the_figures_depend_on_and_mean() -> None:
    text = "\n".join(report.header(environment(), wide=False))
    for part in ("2 ranks on 1 node: n1 0-1; 2 cores a rank, shared", "a launcher; An MPI 1.2.3"):
        assert part in text
    for part in ("torch 2.14 with 1 thread a rank", "Python 3.11", "microseconds", "maximum over ranks"):
        assert part in text
    assert "OVERSUBSCRIBED" not in text
    assert "skew_us" not in text
    assert text.isascii()
    assert any(line.startswith("skew_us") for line in report.header(environment(), wide=True))


def test_banner_names_the_hosts_with_more_ranks_than_cores() -> None:
    nodes = (0, 0, 0, 1, 1)
    topology = Topology(0, nodes, nodes, ("n1", "n2"))
    cores = (frozenset({0, 1}),) * 3 + (frozenset({4}), frozenset({5}))
    crowded = environment(hosts=hosts(topology, cores))
    assert [host.is_oversubscribed for host in crowded.hosts] == [True, False]
    assert crowded.oversubscribed == "OVERSUBSCRIBED: 3 ranks on 2 cores of n1; times include waiting for a core"
    assert placement(topology, cores) == "1 to 2 cores a rank, shared with other ranks"
    assert placement(topology, tuple(frozenset({core}) for core in range(5))) == "1 core a rank, not shared"
    assert report.header(crowded, wide=False)[-1] == strong(str(crowded.oversubscribed))


def test_backends_that_were_not_built_have_a_line_each() -> None:
    assert report.not_built({"nccl": "no GPU", "x": "no such backend"}) == [
        "  not built: nccl: no GPU",
        "  not built: x: no such backend",
    ]
