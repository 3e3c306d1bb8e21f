"""The file of a trace, in Chrome's trace-event format, which ui.perfetto.dev opens; written rank by rank.

A rank is a process; a group's operations, and every part of its backend, are threads of it; a span is a complete event
(``X``). What overlaps in a part is dealt out to several threads, as a thread's events must not. Beside the events
stands what else hpccomm knows of the run: hosts, clocks, and the bytes from rank to rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from hpccomm.errors import OptionError
from hpccomm.timeline.clock import Reading, aligned
from hpccomm.timeline.recorder import OPERATIONS

VERSION = 1
Part = Mapping[str, Any]
"""What a rank brings: `Recorder.as_data`, and its `Reading`s as ``readings``."""


@dataclass(frozen=True)
class Sent:
    """Bytes from one rank to another.

    Attributes:
        source: The rank that sends.
        dest: The rank that receives.
        messages: Bytes of messages that hpccomm sent itself.
        collectives: Bytes inside libraries' collectives, counted as if every block went straight to its taker.
    """

    source: int
    dest: int
    messages: int
    collectives: int


@dataclass(frozen=True)
class Summary:
    """What a trace says beside its events.

    Attributes:
        hosts: Host of each rank.
        began_s: Time 0 of the events on rank 0's clock.
        spans: How many there are of each rank.
        left_out: How many more there were.
        clocks: Of each rank its clock's readings, at the beginning and at the end; none of rank 0.
        sent: Bytes from rank to rank.
    """

    hosts: tuple[str, ...]
    began_s: float
    spans: tuple[int, ...]
    left_out: tuple[int, ...]
    clocks: tuple[tuple[Reading, ...], ...]
    sent: tuple[Sent, ...]


def write(file: TextIO, parts: Iterable[Part], ranks: int, began_s: float) -> None:
    """Write a trace.

    Args:
        file: Where to.
        parts: What all ranks bring, in any order; each is written as it comes.
        ranks: How many ranks there are.
        began_s: Time 0 of the events, by rank 0's clock.
    """
    hosts, spans, left_out = [""] * ranks, [0] * ranks, [0] * ranks
    clocks: list[Sequence[Mapping[str, float]]] = [()] * ranks
    sent: list[list[int]] = []
    numbers = count(1)  # a thread's number is its own among those of all processes, and 0 is none
    file.write('{"displayTimeUnit": "ns",\n"traceEvents": [')
    separator = "\n"
    for part in parts:
        for event in _events(part, began_s, numbers):
            file.write(separator + json.dumps(event))
            separator = ",\n"
        rank = part["rank"]
        hosts[rank], spans[rank], left_out[rank] = part["host"], len(part["spans"]), part["left_out"]
        clocks[rank] = part["readings"]
        sent += [[rank, *row] for row in part["sent"]]
    about = {
        "version": VERSION,
        "hosts": hosts,
        "began_s": began_s,
        "spans": spans,
        "left_out": left_out,
        "clocks": clocks,
        "sent": sorted(sent),
    }
    file.write(f'\n],\n"otherData": {{"hpccomm": {json.dumps(about)}}}}}\n')


def load(path: Path) -> Summary:
    """Read what a trace says beside its events.

    Raises:
        OptionError: It is no trace of hpccomm's.
    """
    try:
        about = json.loads(path.read_text(encoding="utf-8"))["otherData"]["hpccomm"]
        if about["version"] != VERSION:
            raise ValueError(f"version {about['version']}")
        return Summary(
            hosts=tuple(map(str, about["hosts"])),
            began_s=float(about["began_s"]),
            spans=tuple(map(int, about["spans"])),
            left_out=tuple(map(int, about["left_out"])),
            clocks=tuple(tuple(Reading(**one) for one in readings) for readings in about["clocks"]),
            sent=tuple(Sent(*map(int, row)) for row in about["sent"]),
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise OptionError(
            f"read the trace {path}",
            found=f"{type(error).__name__}: {error}",
            remedy="name a file that HPCCOMM_TRACE or the benchmark's --trace had written",
        ) from error


def entries(readings: Sequence[Reading]) -> list[dict[str, float]]:
    """Give readings as a part holds them."""
    return [asdict(one) for one in readings]


def _events(part: Part, began_s: float, numbers: Iterator[int]) -> Iterator[dict[str, Any]]:
    process, at = part["rank"] + 1, aligned([Reading(**one) for one in part["readings"]])  # 0 is the system's idle one
    yield _name("process_name", process, name=f"rank {part['rank']} ({part['host']}, process {part['pid']})")
    yield _name("process_sort_index", process, sort_index=part["rank"])
    by_track: list[list[Any]] = [[] for _ in part["tracks"]]
    for span in part["spans"]:
        by_track[span[0]].append(span)
    for track in sorted(range(len(by_track)), key=lambda track: _order(*part["tracks"][track])):
        name = ": ".join(part["tracks"][track])
        threads: list[int] = []
        for lane, (_, what, begin, end, about) in _in_lanes(by_track[track]):
            if lane == len(threads):
                threads.append(next(numbers))
                yield _name("thread_name", process, threads[lane], name=f"{name} ({lane + 1})" if lane else name)
                yield _name("thread_sort_index", process, threads[lane], sort_index=threads[lane])
            start_us, end_us = ((at(time_s) - began_s) * 1e6 for time_s in (begin, end))
            yield {
                "ph": "X",
                "name": what,
                "cat": part["tracks"][track][1],
                "pid": process,
                "tid": threads[lane],
                "ts": round(start_us, 3),
                "dur": round(round(end_us, 3) - round(start_us, 3), 3),
                "args": about,
            }


def _order(path: str, what: str) -> tuple[list[str], bool]:
    """Put what a group's users call first, then its backend, then the parts of that from the outside in."""
    return path.split("/"), what != OPERATIONS


def _name(kind: str, process: int, thread: int = 0, **what: Any) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": what}


def _in_lanes(spans: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Deal spans out to lanes in which none overlaps another, as few as possible."""
    busy: list[tuple[float, int]] = []
    lanes = 0
    for span in sorted(spans, key=lambda span: (span[2], span[3])):
        if busy and busy[0][0] <= span[2]:
            _, lane = heappop(busy)
        else:
            lane, lanes = lanes, lanes + 1
        heappush(busy, (span[3], lane))
        yield lane, span
