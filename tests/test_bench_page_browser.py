"""The report in a browser: it can be read, wide and narrow, light and dark, and shows values where one points."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from browser import MISSING, Browser, executable
from hpccomm.bench.page import html
from hpccomm.bench.page.runs import read
from hpccomm.bench.pairs.matrix import Edge
from matrices import by_slot, matrix_of, touching
from reports import MODELS, NASTY, SIZES, linear, recorded, rows_of
from suites import BATCH, HIDDEN, LAST, all_sections, starts

FOUR, MANY = by_slot(4, 2), by_slot(20, 8)
SICK = 2
LATE = 2 * SICK  # a rank of that host
AXES = {
    "time": ("size (bytes)", "time (us, median)"),
    "busbw": ("size (bytes)", "busbw (GB/s)"),
    "latency": ("to rank", "from rank", "in us;"),
    "bandwidth": ("to rank", "from rank", "in GB/s;"),
    "efficiency1": ("highest busbw (% of sendrecv's)", "mpi4py", "gloo"),
    "efficiency2": ("highest busbw (% of sendrecv's)", "mpi4py", "gloo"),
    "overlap1-hidden": ("bucket (bytes)", "hidden (% of averaging)"),
    "overlap1-step": ("bucket (bytes)", "time (us, median)", "backward alone"),
    "buckets1-time": ("bucket (bytes)", "time (us, median)"),
    "workload1-step": ("time of a step (ms, medians)", "mpi4py", "tensor parallel: activations"),
    "workload1-layer": ("time of a layer (ms, medians)", "gloo", "data parallel: a layer's gradients"),
    "workload1-bytes": ("bytes of a step (MB)", "pipeline parallel"),
    "stability-course": ("call", "time (us, median)"),
    "stability-longest": ("call", "time (us, longest)"),
    "stability-late": ("rank", "late (us, median)"),
    "stability-last": ("rank", "last (% of calls)"),
    "start": ("rank", "time (s)", "imports"),
}
"""What stands at the axes of a figure, and more of its words, by the longest end of its name that is listed."""
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
    found = all_sections(FOUR, names, late=LATE)
    runs = [
        read(
            recorded(FOUR, rows, matrices=[sick], names=names, sections=found, start_up_of_ranks=starts(8, slow=LATE))
        ),
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
    assert len(texts) == 2 * 2 + 2 + 2 + 2 + 2 + 2 + 1 + 3 + 4 + 1
    for name, text in texts.items():
        words = AXES[max((end for end in AXES if name.endswith(end)), key=len)]
        assert all(word in text for word in words), name
    assert browser.complaints == []


@pytest.mark.parametrize("width", [1600, 360])
def test_pointing_shows_values(browser: Browser, width: int) -> None:
    def pointed(element: str, across: float = 0.5, down: float = 0.5) -> list[str] | None:
        browser.hover(element, across, down)
        found: list[str] | None = browser.evaluate(TIP)
        assert found is None or browser.evaluate(INSIDE)
        return found

    browser.show(width=width, scheme="light")
    _check_sections(pointed)
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


def _check_sections(pointed: Callable[..., list[str] | None]) -> None:
    def at(name: str, across: float, down: float = 0.5) -> list[str]:
        found = pointed(f'[data-figure="run1-{name}"] svg', across, down)
        assert found is not None
        return found

    gloo, mpi4py = (at("efficiency1", 0.2, down) for down in (0.1, 0.45))
    assert gloo == ["gloo", "85 %  highest busbw over that of sendrecv"]
    assert mpi4py[1].startswith("50 %")
    first, *values = at("overlap1-hidden", 0.99)
    assert first == "64 MiB"
    assert values == [f"{HIDDEN[name][-1]:.0f} %  {name}" for name in ("mpi4py", "gloo")]
    assert at("overlap1-step", 0.99)[1] == "50000 us  backward alone"
    assert at("buckets1-time", 0.01) == ["1 MiB", "20000 us  mpi4py", "80000 us  gloo"]
    step = at("workload1-step", 0.5, 0.1)
    tensor, data, pipeline = 4 * BATCH * 6 * 0.3, 6 * 2.0, 2 * BATCH * 0.7
    assert step[:2] == ["mpi4py", f"{tensor + data + pipeline:.3g} ms  in all"]
    assert (
        step[2] == f"{tensor:.3g} ms ({100 * tensor / (tensor + data + pipeline):.0f} %)  tensor parallel: activations"
    )
    call, *values = at("stability-course", 0.99)
    assert call == "call 99"
    assert {line.split()[-1] for line in values} == {"mpi4py", "gloo"}
    late = at("stability-last", 0.18 + 0.8 * LATE / 7)
    assert late[0] == f"rank {LATE} on host {NASTY}"
    assert f"{LAST} %  mpi4py" in late
    assert at("start", 0.18 + 0.8 * LATE / 7) == [late[0], "0.25 s  groups", "0.5 s  init", "3 s  imports"]
