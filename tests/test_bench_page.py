"""The report's words, figures and files, from results that nobody measured; the page itself is seen in a browser."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from hpccomm.bench.__main__ import main
from hpccomm.bench.compare import Recorded
from hpccomm.bench.page import figures, html, write
from hpccomm.bench.page.runs import read
from hpccomm.bench.page.summary import sentences, spans
from hpccomm.bench.pairs.matrix import Edge
from hpccomm.errors import OptionError
from hpccomm.units import format_bytes
from matrices import by_slot, matrix_of, touching
from reports import MODELS, NASTY, SIZES, linear, recorded, rows_of

HOSTS = by_slot(4, 2)
HIERARCHY = "hierarchical(mpi4py, gloo)"
MOST_BYTES = 6_000_000
STEPS = range(1, 512, 8)  # 64 partners of each of 512 ranks


class Elements(HTMLParser):
    """The elements of a page, with their attributes, and the text of its scripts and of all else."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script":
            self.scripts.append(data)
        else:
            self.text += data


def page(*runs: Recorded) -> str:
    read_runs = [read(one) for one in runs]
    return html.page(read_runs, html.all_figures(read_runs), {})


def whole_run(**changed: Any) -> Recorded:
    sick = dict.fromkeys(touching(HOSTS, 2), 4.0)
    rows = [one for name in ("all_reduce", "broadcast", "barrier") for one in rows_of(HOSTS, name)]
    return recorded(HOSTS, rows, matrices=[matrix_of(HOSTS, sick)], **changed)


def test_the_page_has_everything_and_needs_nothing() -> None:
    found = Elements(page(whole_run()))
    for text in (
        "use mpi4py below 256 KiB, hierarchical(mpi4py, gloo) from 256 KiB on",
        "Slow over mpi4py: host node3",
        "8 ranks on 4 hosts",
    ):
        assert text in found.text
    drawn = [attrs["data-figure"] for _, attrs in found.found if "data-figure" in attrs]
    assert drawn == [
        *(f"run1-table{table}-{what}" for table in (1, 2) for what in ("time", "busbw")),
        "run1-pairs1-latency",
        "run1-pairs1-bandwidth",
    ]
    assert json.loads(found.scripts[0]).keys() == {*drawn}
    links = [value for _, attrs in found.found for key, value in attrs.items() if key in ("href", "src", "data")]
    assert all(link and link.startswith("#") for link in links)
    named = {attrs["id"] for _, attrs in found.found if "id" in attrs}
    assert {link.lstrip("#") for link in links if link} <= named
    assert not {"link", "img", "iframe", "object", "base"} & {tag for tag, _ in found.found}


def test_text_from_hosts_stays_text() -> None:
    names = [f"{NASTY}{number}" for number in range(4)]
    rows = [
        {**one, "backend": f"{one['backend']}{NASTY}", "error": NASTY, "fell_back": NASTY} for one in rows_of(HOSTS)
    ]
    matrix = replace(matrix_of(HOSTS, {(0, 3): 9.0}), hostnames=tuple(names), backend=NASTY, error=NASTY)
    facts = dict.fromkeys(("command_line", "topology", "placement", "launcher", "mpi", "date", NASTY), NASTY)
    made = recorded(HOSTS, rows, matrices=[matrix], names=names, not_built={NASTY: NASTY}, **facts)
    plain = Elements(page(recorded(HOSTS, rows_of(HOSTS), matrices=[matrix_of(HOSTS)])))
    found = Elements(page(replace(made, name=NASTY, complete=False)))
    assert [tag for tag, _ in found.found].count("script") == [tag for tag, _ in plain.found].count("script") == 2
    assert {key for _, attrs in found.found for key in attrs} <= {key for _, attrs in plain.found for key in attrs}
    assert NASTY in found.text
    assert json.loads(found.scripts[0])["run1-pairs1-latency"]["hostnames"] == names


def test_a_page_of_512_ranks_and_many_tables_is_small() -> None:
    hosts = by_slot(64, 8)
    edges = [Edge(rank, (rank + step) % 512, 20.0, 0.25 if rank < 8 else 1.0) for rank in range(512) for step in STEPS]
    matrix = replace(matrix_of((0, 1)), hosts=hosts, hostnames=tuple(map(str, range(64))), edges=tuple(edges))
    rows = [one for name in ("all_reduce", "broadcast", "all_gather", "reduce_scatter") for one in rows_of(hosts, name)]
    text = page(recorded(hosts, rows, matrices=[matrix]))
    assert "Slow over mpi4py: host 0, sending to other hosts" in text
    assert len(text.encode()) < MOST_BYTES / 2


def test_ranks_are_merged_where_they_are_very_many_and_the_slow_one_stays() -> None:
    hosts = by_slot(1024, 1)
    edges = [Edge(rank, (rank + step) % 1024, 20.0, 1.0) for rank in range(1024) for step in (1, 7)]
    edges[500] = replace(edges[500], gbps=0.1)
    matrix = replace(matrix_of((0, 1)), hosts=hosts, hostnames=tuple(map(str, hosts)), edges=tuple(edges))
    latency, rates = figures.of_matrix(matrix, "m")
    assert (rates.side, rates.block) == (128, 8)
    assert [(one.source, one.dest) for one in rates.cells if one.slow] == [(edges[500].source, edges[500].dest)]
    assert len(latency.cells) < len(edges)


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({4: {"a": 1.0, "b": 1.0}}, [("a", (4,))]),
        ({4: {"a": 1.0, "b": 2.0}, 8: {"a": 3.0, "b": 2.0}}, [("a", (4,)), ("b", (8,))]),
        # within a tenth: no change for one size
        ({4: {"a": 1.0, "b": 2.0}, 8: {"a": 2.1, "b": 2.0}, 16: {"a": 2.0, "b": 3.0}}, [("a", (4, 8, 16))]),
        # b is as good as a at 4, and stays so
        ({4: {"a": 1.0, "b": 1.05}, 8: {"a": 3.0, "b": 2.0}}, [("b", (4, 8))]),
    ],
)
def test_sizes_are_cut_into_as_few_spans_as_can_be(
    times: dict[int, dict[str, float]], expected: list[tuple[str, tuple[int, ...]]]
) -> None:
    (table,) = read(recorded((0, 0))).tables
    point = table.points[0]
    points = [
        replace(point, backend=name, size=size, time_us=time)
        for size, of_size in times.items()
        for name, time in of_size.items()
    ]
    assert [(span.backend, span.sizes) for span in spans(replace(table, points=tuple(points)))] == expected


def test_the_summary_is_right_by_its_rules() -> None:
    crossing = next(size for size in SIZES if linear(HIERARCHY, size) * 1.1 < linear("mpi4py", size))
    peak = 1.75 * SIZES[-1] / linear(HIERARCHY, SIZES[-1]) / 1e3
    first, second, *_ = sentences(read(whole_run()))
    assert first.startswith(
        "all_reduce sum of float32, in place, on 8 ranks: use mpi4py below "
        f"{format_bytes(crossing)}, {HIERARCHY} from {format_bytes(crossing)} on. If it must be one for all sizes: "
    )
    assert f"{peak:.2f} GB/s, by {HIERARCHY} at 16 MiB" in second


def test_the_map_of_the_best_joins_runs_of_several_sizes() -> None:
    runs = [read(recorded(by_slot(hosts, 2))) for hosts in (4, 2)]
    (best,) = figures.best_maps(runs, figures.colours(runs))
    assert best.ranks == ("4 ranks on 2 hosts", "8 ranks on 4 hosts")
    assert best.sizes == SIZES
    fastest = [min(MODELS, key=lambda name, size=size: linear(name, size)) for size in SIZES]  # type: ignore[misc]
    assert [[cell and cell[0] for cell in row] for row in best.cells] == [[name, name] for name in fastest]


def test_every_figure_is_a_picture_too(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    matrix = replace(matrix_of(HOSTS, {(0, 3): 9.0}), hostnames=(NASTY, "b", "c", "d"))
    run = recorded(HOSTS, matrices=[matrix], names=[NASTY, "b", "c", "d"])
    (told,) = write(tmp_path, [run], results="{}")
    assert told == f"report: {tmp_path / 'index.html'}"
    files = {path.name for path in (tmp_path / "plots").iterdir()}
    names = {"best-1", "run1-table1-time", "run1-table1-busbw", "run1-pairs1-latency", "run1-pairs1-bandwidth"}
    assert files == {f"{name}.{kind}" for name in (*names, "placement-1") for kind in ("png", "svg")}
    for path in (tmp_path / "plots").iterdir():
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            assert ElementTree.parse(path).getroot().tag.endswith("svg")
            assert "mathdefault" not in path.read_text()
    assert "GB/s" in (tmp_path / "plots/run1-table1-busbw.svg").read_text()
    linked = set(re.findall(r'href="plots/([^"]+)"', (tmp_path / "index.html").read_text()))
    assert linked == files


def test_without_matplotlib_the_page_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "hpccomm.bench.page.plots", raising=False)
    monkeypatch.delattr("hpccomm.bench.page.plots", raising=False)
    (told,) = write(tmp_path, [recorded(HOSTS)])
    assert "pip install 'hpccomm[report]'" in told
    assert "run1-table1-busbw" in (tmp_path / "index.html").read_text()


@pytest.mark.parametrize(
    "broken",
    [
        {"time_us_median": -1.0},
        {"busbw_GBps": "fast"},
        {"size_bytes": None},
    ],
)
def test_what_the_benchmark_does_not_write_is_refused(broken: dict[str, Any]) -> None:
    made = recorded(HOSTS)
    with pytest.raises(OptionError, match=r"report made\.json"):
        read(replace(made, results=[{**made.results[0], **broken}]))
    for changed in ({"hosts": []}, {"host_of_rank": [0]}, {"node_of_rank": "01"}):
        with pytest.raises(OptionError):
            read(replace(made, environment={**made.environment, **changed}))


def test_a_report_of_files_is_made_without_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, path = whole_run(), tmp_path / "old.json"
    content = {"environment": made.environment, "complete": True, "results": made.results, "pairs": made.pairs}
    path.write_text(json.dumps(content))
    assert main(["--report", str(tmp_path / "out"), "--from", str(path)], {}) == 0
    assert "report: " in capsys.readouterr().out
    assert "Slow over mpi4py: host node3" in (tmp_path / "out/index.html").read_text()
    path.write_text(json.dumps({**content, "pairs": [{}]}))
    assert main(["--report", str(tmp_path / "no"), "--from", str(path)], {}) == 2
    assert capsys.readouterr().err.count("report ") == 1
    assert not (tmp_path / "no").exists()
    (tmp_path / "file").touch()
    path.write_text(json.dumps(content))
    assert main(["--report", str(tmp_path / "file"), "--from", str(path)], {}) == 2
