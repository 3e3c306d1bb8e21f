"""The report in a browser: it can be read, wide and narrow, light and dark, and shows values where one points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from browser import MISSING, Browser, executable
from hpccomm.bench.page import html
from hpccomm.bench.page.runs import read
from hpccomm.bench.pairs.matrix import Edge
from matrices import by_slot, matrix_of, touching
from reports import MODELS, NASTY, SIZES, linear, recorded, rows_of

FOUR, MANY = by_slot(4, 2), by_slot(20, 8)
SICK = 2
LEGIBLE = (Path(__file__).parent / "legible.js").read_text()
TEXTS = """Object.fromEntries([...document.querySelectorAll(".plot")].map(plot =>
    [plot.dataset.figure, [...plot.querySelectorAll("text, li")].map(one => one.textContent).join("|")]))"""
TIP = "(tip => tip.hidden ? null : tip.textContent.split('\\n'))(document.getElementById('tip'))"
INSIDE = """(box => box.left >= 0 && box.top >= 0 && box.right <= innerWidth && box.bottom <= innerHeight)(
    document.getElementById('tip').getBoundingClientRect())"""


def page() -> str:
    """Give a page of a run on 4 hosts, one of which is sick and has a nasty name, and one on 20 hosts of long names."""
    names = [f"node{number + 1}" for number in range(4)]
    names[SICK] = NASTY
    rows = [one for name in ("all_reduce", "broadcast", "barrier") for one in rows_of(FOUR, name)]
    rows += [{**one, "backend": f"ring({one['backend']})"} for one in rows]  # dashes too
    sick = replace(matrix_of(FOUR, dict.fromkeys(touching(FOUR, SICK), 4.0)), hostnames=tuple(names))
    long = [f"rack-{number // 10}-compute-node-{number:03d}.cluster.example.org" for number in range(20)]
    edges = [Edge(rank, (rank + step) % 160, 20.0, 0.25 if rank < 8 else 1.0) for rank in range(160) for step in (1, 9)]
    many = replace(matrix_of(MANY), hostnames=tuple(long), edges=tuple(edges))
    runs = [
        read(recorded(FOUR, rows, matrices=[sick], names=names)),
        read(recorded(MANY, matrices=[many], names=long)),
    ]
    return html.page(runs, html.all_figures(runs), {})


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = executable()
    if program is None:
        pytest.skip(MISSING)
    folder = tmp_path_factory.mktemp("page")
    (folder / "index.html").write_text(page())
    with Browser(program, str(folder / "profile")) as browser:
        browser.open((folder / "index.html").as_uri())
        yield browser


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1600, 360])
def test_the_page_can_be_read(browser: Browser, width: int, scheme: str) -> None:
    browser.show(width=width, scheme=scheme)
    assert "\n".join(browser.evaluate(LEGIBLE)) == ""
    assert browser.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [width, width]
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(15, 20, 25)"
    assert dark == (scheme == "dark")
    texts: Mapping[str, str] = browser.evaluate(TEXTS)
    assert len(texts) == 2 * 2 + 2 + 2 + 2
    for name, text in texts.items():
        axes = ("to rank", "from rank") if "pairs" in name else ("size (bytes)",)
        unit = "us" if name.endswith(("time", "latency")) else "GB/s"
        assert all(axis in text for axis in axes), name
        assert f"in {unit};" in text or f"({unit}" in text, name
    assert browser.complaints == []


@pytest.mark.parametrize("width", [1600, 360])
def test_pointing_shows_values(browser: Browser, width: int) -> None:
    def pointed(element: str, across: float = 0.5, down: float = 0.5) -> list[str] | None:
        browser.hover(element, across, down)
        found: list[str] | None = browser.evaluate(TIP)
        assert found is None or browser.evaluate(INSIDE)
        return found

    browser.show(width=width, scheme="light")
    found = pointed('[data-figure="run1-table1-time"] svg', 0.99)
    assert found is not None
    assert found[0] == "16 MiB"
    shown = {name: float(value) for value, _, name in (line.split(maxsplit=2) for line in found[1:])}
    for name in MODELS:
        assert shown[name] == shown[f"ring({name})"] == pytest.approx(linear(name, SIZES[-1]), rel=0.01)
    assert [*shown.values()] == sorted(shown.values())

    corner = pointed('[data-figure="run1-pairs1-bandwidth"] canvas', 0.99, 0.01)
    assert corner is not None
    assert corner[0] == "rank 0 (node1) to rank 7 (node4)"
    slow = pointed('[data-figure="run1-pairs1-bandwidth"] canvas', 4.5 / 8, 0.01)
    assert slow is not None
    assert NASTY in slow[0]
    assert "SLOW by the rule below" in slow
    assert pointed('[data-figure="run1-pairs1-bandwidth"] canvas', 0.01, 0.01) is None
    fastest = pointed("#best-1 tbody tr:last-child td")
    assert fastest is not None
    assert fastest[0].endswith("hierarchical(mpi4py, gloo)")
    assert pointed("h1") is None
    assert browser.complaints == []
