"""Traced worlds: right results as ever, and a trace that knows every part and every byte."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
import torch.distributed as dist
from worlds import COMM, PLACEMENTS, world

from traces import sent, spans, valid

SIZE, RANK = COMM.size, COMM.rank
pytestmark = [pytest.mark.mpi, pytest.mark.skipif(SIZE != 3, reason="three ranks show it all")]

COUNT = 1000 * SIZE  # elements, of four bytes
CALLS = 3
MESSAGE = 5


def traced(placement: str, backend: str, folder: str) -> dict[str, Any]:
    """Trace a world that reduces, waits, and passes a message on; gives the trace on all ranks."""
    os.environ["HPCCOMM_TRACE"] = COMM.bcast(f"{folder}/")
    try:
        with world(placement, backend):
            for _ in range(CALLS):
                tensor = torch.full((COUNT,), float(RANK))
                for work in [dist.all_reduce(tensor, async_op=True), dist.barrier(async_op=True)]:
                    work.wait()
                assert tensor.eq(sum(range(SIZE))).all()
            got = torch.empty(MESSAGE)
            for message in [dist.irecv(got, (RANK - 1) % SIZE), dist.isend(torch.ones(MESSAGE), (RANK + 1) % SIZE)]:
                assert message is not None
                message.wait()
            assert got.eq(1).all()
    finally:
        folder = os.environ.pop("HPCCOMM_TRACE")
    COMM.Barrier()
    (path,) = Path(folder).iterdir()
    data = valid(path)
    COMM.Barrier()
    return data


def test_a_ring_sends_its_share_to_the_next_rank_and_nothing_else() -> None:
    with TemporaryDirectory() as folder:
        data = traced("A" * SIZE, "ring(mpi4py)", folder)
    each = 2 * (SIZE - 1) * COUNT * 4 // SIZE * CALLS + 4 * MESSAGE
    assert sent(data) == {(rank, (rank + 1) % SIZE): [each, 0] for rank in range(SIZE)}
    for rank in range(SIZE):
        messages = [one for one in spans(data, rank, "mpi4py") if one["name"].startswith("send")]
        assert len(messages) == 2 * (SIZE - 1) * CALLS + 1
        wholes, parts = (
            [one for one in spans(data, rank, category) if one["name"] == "all_reduce"]
            for category in ("operations", "ring(mpi4py)")
        )
        assert [one["args"]["operation"] for one in wholes] == [1, 3, 5]
        for whole, part in zip(wholes, parts, strict=True):
            assert whole["args"]["bytes"] == part["args"]["bytes"] == COUNT * 4
            assert whole["ts"] <= part["ts"]
            assert part["ts"] + part["dur"] <= whole["ts"] + whole["dur"] + 0.002


def test_a_hierarchys_legs_are_told_apart() -> None:
    placement = PLACEMENTS[SIZE][0]
    with TemporaryDirectory() as folder:
        data = traced(placement, "hierarchical(mpi4py, ring(gloo))", folder)
    names = {one["args"]["name"] for one in data["traceEvents"] if one["name"] == "thread_name"}
    assert {"group 0: operations", "group 0/intra: mpi4py", "group 0/rail0: ring(gloo)"} <= names
    across = [many for (a, b), many in sent(data).items() if placement[a] != placement[b]]
    assert across
    assert not any(collectives for _, collectives in across)
