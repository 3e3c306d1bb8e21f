"""What every trace must be, whoever made it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

KEYS = {"X": {"name", "cat", "ph", "pid", "tid", "ts", "dur", "args"}, "M": {"name", "ph", "pid", "tid", "args"}}


def valid(path: Path) -> dict[str, Any]:
    """Read a file of Chrome's trace events, and see that viewers take all of them."""
    data: dict[str, Any] = json.loads(path.read_text())
    events = data["traceEvents"]
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    processes = [one["pid"] for one in events if one["name"] == "process_name"]
    assert len(processes) == len(set(processes)), "a process has two names"
    assert len(named) == len({tid for _, tid in named}), "two processes share a thread"
    ends: dict[int, float] = {}
    for one in events:
        assert one.keys() == KEYS[one["ph"]], one
        assert one["pid"] in processes, one
    for one in sorted((one for one in events if one["ph"] == "X"), key=lambda one: (one["ts"], one["dur"])):
        assert (one["pid"], one["tid"]) in named, one
        assert one["dur"] >= 0, one
        assert one["ts"] >= ends.get(one["tid"], one["ts"]) - 0.0015, f"{one} overlaps what ends at {ends[one['tid']]}"
        ends[one["tid"]] = one["ts"] + one["dur"]
    return data


def spans(data: dict[str, Any], rank: int, category: str) -> list[dict[str, Any]]:
    """Give a rank's spans of what one part of an expression, or its users, did; in the order of their beginning."""
    of = [one for one in data["traceEvents"] if one["ph"] == "X" and (one["pid"], one["cat"]) == (rank + 1, category)]
    return sorted(of, key=lambda one: float(one["ts"]))


def sent(data: dict[str, Any]) -> dict[tuple[int, int], list[int]]:
    """Give the bytes of messages and of collectives, by source and dest."""
    return {(source, dest): many for source, dest, *many in data["otherData"]["hpccomm"]["sent"]}
