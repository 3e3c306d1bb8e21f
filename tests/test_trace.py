"""Traces: clocks that are wrong, the file, the bytes of a call, and the map of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from hpccomm.backends.volume import sent
from hpccomm.bootstrap import tracing
from hpccomm.errors import OptionError
from hpccomm.exchange import StoreExchange
from hpccomm.timeline import chrome, meeting
from hpccomm.timeline.clock import ROUND_TRIPS, Reading, aligned, read
from hpccomm.timeline.recorder import Recorder, Span
from hpccomm.trace import matrix
from hpccomm.trace.__main__ import main
from traces import spans, valid

RECOVERED_S = 50e-6
APART_S = 0.2


def wrong(offset_s: float, drift: float) -> Callable[[], float]:
    """Give a clock that is ahead and runs fast from now on."""
    begin = time.monotonic()
    return lambda: time.monotonic() + offset_s + drift * (time.monotonic() - begin)


@pytest.mark.parametrize(
    ("host", "guest"),
    [((0, 0), (1, 50e-6)), ((0.5, 50e-6), (-1, -50e-6)), ((0, 0), (0.3, 0.01))],
    ids=["ahead", "behind", "so fast that only a line between both readings will do"],
)
def test_offset_and_drift_are_recovered_over_a_connection(
    host: tuple[float, float], guest: tuple[float, float]
) -> None:
    ours, theirs = wrong(*host), wrong(*guest)
    server, place = meeting.listen("127.0.0.1", b"0123456789abcdef", 1)
    brought: list[bytes] = []
    serving = threading.Thread(
        target=lambda: [brought.extend(meeting.receive(server, place.token, 1, ours, 20)) for _ in range(2)]
    )
    serving.start()
    first = meeting.visit(place, theirs, lambda _: b"first", 20)
    times = []
    while not times or times[-1][0] < times[0][0] + APART_S:
        times.append((ours(), theirs()))
        time.sleep(0.01)
    last = meeting.visit(place, theirs, lambda _: b"", 20)
    serving.join()
    server.close()
    assert brought == [b"first", b""]
    at = aligned([first, last])
    errors = sorted(abs(at(theirs_s) - ours_s) for ours_s, theirs_s in times)
    assert errors[len(errors) // 2] < RECOVERED_S, (errors, first, last)


def test_the_shortest_round_trip_counts() -> None:
    trips = [[8.0, 0.0, 9.0]] * (ROUND_TRIPS - 1) + [[5.0, 1.0, 5.5]]
    now = iter([at for before, _, after in trips for at in (before, after)])
    answers = iter([answer for _, answer, _ in trips])
    assert read(lambda: next(now), lambda: next(answers)) == Reading(5.25, 4.25, 0.5)


def test_strangers_are_passed_over_and_who_is_alone_gives_up() -> None:
    server, place = meeting.listen("127.0.0.1", b"right", 1)
    with pytest.raises(OSError):
        meeting.visit(meeting.Place(place.address, place.port, b"wrong"), time.monotonic, lambda _: b"", 0.2)
    with pytest.raises(TimeoutError):
        list(meeting.receive(server, place.token, 1, time.monotonic, 0.4))
    server.close()


def part(rank: int, at: Sequence[tuple[float, float]], readings: Sequence[Reading] = (), most: int = 9) -> chrome.Part:
    """Give what a rank brings that saw these spans of one track, and sent a message and a block to the next rank."""
    recorder = Recorder(rank, most)
    track = recorder.track("group 0", "gloo")
    for begin, end in at:
        recorder.clock = lambda end=end: end  # type: ignore[misc]
        recorder.end(Span(track, "all_reduce", {"bytes": 4}, begin))
    for by_messages in (True, False):
        recorder.count({(rank + 1) % 2: 100 + by_messages}, by_messages=by_messages)
    return {**recorder.as_data(), "readings": chrome.entries(readings)}


def test_a_file_is_valid_by_one_clock_and_says_what_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlapping = [(1.0, 3.0), (2.0, 2.5), (2.5, 4.0), (3.0, 3.5)]
    drifting = [Reading(10.0, 9.0, 1e-5), Reading(20.0, 14.0, 2e-5)]  # its own 10 to 20 s are rank 0's 1 to 6
    path = tmp_path / "trace.json"
    with path.open("w") as file:
        chrome.write(file, [part(0, overlapping), part(1, [(12.0, 14.0)] * 3, drifting, most=2)], 2, began_s=1.0)
    data = valid(path)
    first, second = spans(data, 0, "gloo"), spans(data, 1, "gloo")
    assert [(one["ts"], one["dur"]) for one in first] == [(0, 2e6), (1e6, 0.5e6), (1.5e6, 1.5e6), (2e6, 0.5e6)]
    assert len({one["tid"] for one in first}) == 2
    assert [(one["ts"], one["dur"], one["args"]) for one in second] == [(1e6, 1e6, {"bytes": 4})] * 2
    summary = chrome.load(path)
    assert (summary.spans, summary.left_out) == ((4, 2), (0, 1))
    assert summary.sent == (chrome.Sent(0, 1, 101, 100), chrome.Sent(1, 0, 101, 100))
    assert main([str(path), "--matrix"], {}) == 0
    told = capsys.readouterr().out
    assert "INCOMPLETE: 1 later spans" in told
    assert "corrected to within 10.0 us" in told
    assert "200 B of it inside libraries' collectives" in told
    path.write_text("[]")
    assert main([str(path)], {}) == 2


BLOCK = torch.zeros(10, dtype=torch.int16)
WHOLE = torch.zeros(30, dtype=torch.int16)


@pytest.mark.parametrize(
    ("name", "arguments", "of_rank_0", "of_rank_2"),
    [
        ("all_reduce", (BLOCK, None), {1: 14, 2: 14}, {0: 14, 1: 12}),
        ("reduce_scatter", (BLOCK, WHOLE, None), {1: 20, 2: 20}, {0: 20, 1: 20}),
        ("reduce_scatter", (BLOCK, WHOLE, None, [15, 10, 5]), {1: 20, 2: 10}, {0: 30, 1: 20}),
        ("all_gather", (WHOLE, BLOCK, [10, 20, 0]), {1: 20, 2: 20}, {0: 20, 1: 20}),
        ("all_to_all", (WHOLE, BLOCK, [4, 6, 0], [10, 10, 10]), {1: 12}, {0: 8, 1: 12}),
        ("broadcast", (BLOCK, 2), {}, {0: 20, 1: 20}),
        ("reduce", (BLOCK, None, 2), {2: 20}, {}),
        ("gather", (None, BLOCK, 2), {2: 20}, {}),
        ("scatter", (BLOCK, WHOLE, 2), {}, {0: 20, 1: 20}),
        ("send", (BLOCK, 1, 0), {1: 20}, {1: 20}),
        ("recv", (BLOCK, 1, 0), {}, {}),
        ("barrier", (), {}, {}),
    ],
)
def test_bytes_of_a_call(name: str, arguments: Any, of_rank_0: dict[int, int], of_rank_2: dict[int, int]) -> None:
    assert sent(name, 0, 3, arguments) == of_rank_0
    assert sent(name, 2, 3, arguments) == of_rank_2


@pytest.mark.parametrize(("ranks", "rows"), [(3, 3), (40, 40), (512, 74)])
def test_a_map_of_a_ring_has_a_diagonal(ranks: int, rows: int) -> None:
    ring = tuple(chrome.Sent(rank, (rank + 1) % ranks, 3 << 20, 0) for rank in range(ranks))
    hosts = tuple(f"node{rank // 2}" for rank in range(ranks))
    trace = chrome.Summary(hosts, 0.0, (0,) * ranks, (0,) * ranks, ((),) * ranks, ring)
    shown = matrix.lines(trace, colours=False)
    drawn = [line.partition(") ")[2] for line in shown if line.lstrip().startswith("rank ")]
    assert len(drawn) == rows
    if ranks == 3:
        assert [row.split() for row in drawn] == [["\\", "3M", "-"], ["-", "\\", "3M"], ["3M", "-", "\\"]]
    else:
        assert {row[number + (ranks == rows)] for number, row in enumerate(drawn[:-1])} == {"X"}
    assert f"{3 * ranks // 2 if ranks % 2 == 0 else 3} MiB inside hosts" in "\n".join(shown)


def test_a_place_that_cannot_be_written_to_is_refused_and_a_second_trace_has_a_number(tmp_path: Path) -> None:
    def trace(asked: str) -> None:
        alone = StoreExchange(dist.HashStore(), 0, 1)
        tracing.begin(asked, alone, "127.0.0.1", 10)
        tracing.end()

    with pytest.raises(OptionError, match="write a trace to /nowhere/at/all"):
        trace("/nowhere/at/all")
    for _ in range(2):
        trace(str(tmp_path / "trace.json"))
    trace(f"{tmp_path}/folder/")
    assert len(list((tmp_path / "folder").iterdir())) == 1
    names = sorted(path.name for path in tmp_path.glob("*.json"))
    assert len(names) == 2
    assert all(valid(tmp_path / name)["traceEvents"] for name in names)
    with pytest.raises(OptionError, match="on_lost_rank"):
        tracing.refuse({"HPCCOMM_TRACE": "x"})


def test_a_trace_that_a_rank_does_not_come_to_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tracing.begin(str(tmp_path / "trace.json"), StoreExchange(dist.HashStore(), 0, 1), "127.0.0.1", 0.2)
    monkeypatch.setattr(tracing._process.trace, "ranks", 2)
    tracing.end()
    assert "no trace in" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())
