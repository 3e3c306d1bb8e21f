"""A traced job on hosts node1, node2, … whose clocks are wrong, by an offset in seconds and a drift for each host.

Every rank marks some times in the trace, and prints when that was by the machine's clock as rank 0's host shows it.
"""

from __future__ import annotations

import json
import socket
import sys
from time import monotonic, sleep

import torch
import torch.distributed as dist

import hpccomm
from hpccomm.timeline.recorder import Recorder, Span, recording

MARKS, PAUSE_S = 60, 0.01
BACKEND, *CLOCKS = sys.argv[1:]
HOST = int(socket.gethostname().removeprefix("node")) - 1


def shown(at: float, host: int) -> float:
    """Give what a host's clock shows at a time."""
    offset_s, drift = map(float, CLOCKS[host].split(","))
    return at + offset_s + drift * at


def main() -> None:
    Recorder.clock = staticmethod(lambda: shown(monotonic(), HOST))
    marked = []
    with hpccomm.init(BACKEND, timeout_s=60) as world:
        recorder = recording.recorder
        assert recorder is not None
        track = recorder.track("marks", "")
        for _ in range(MARKS):
            dist.all_reduce(torch.ones(world.topology.world_size * 100))
            sleep(PAUSE_S)
            before = monotonic()
            span = Span(track, "mark", {}, recorder.clock())
            marked.append(shown((before + monotonic()) / 2, 0))
            recorder.end(span)
    print(json.dumps({"rank": world.topology.rank, "marked": marked}) + "\n", end="", flush=True)


main()
