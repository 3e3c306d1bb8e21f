"""Counts past a library's limit: chunked calls give what one call would."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch.distributed import ReduceOp
from worlds import CASES, COMM, world

from hpccomm.backends.base import Operation
from hpccomm.backends.gloo import GlooBackend
from hpccomm.backends.mpi import MpiBackend
from reference import integers, reduced

pytestmark = pytest.mark.mpi

RANKS, RANK = range(COMM.size), COMM.rank


@pytest.mark.parametrize(("limit", "counts"), [(1, (0, 1, 2, 7)), (7, (0, 1, 6, 7, 8, 30))], ids=("1", "7"))
def test_small_counts_a_call_change_nothing(
    limit: int, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call of a count may be less than a limit, one, or several, with a rest or without."""
    monkeypatch.setenv("HPCCOMM_MAX_COUNT", str(limit))
    for placement, backend in CASES:
        with world(placement, backend):
            for count in counts:
                tensor = integers(RANK, count, torch.float32)
                dist.all_reduce(tensor)
                assert torch.equal(
                    tensor, reduced(ReduceOp.SUM, [integers(r, count, torch.float32) for r in RANKS]).float()
                )
                dist.broadcast(tensor, 0)
                whole = torch.zeros(count * COMM.size)
                dist.all_gather_into_tensor(whole, integers(RANK, count, torch.float32))
                assert torch.equal(whole, torch.cat([integers(r, count, torch.float32) for r in RANKS]))
                block = torch.zeros(count)
                dist.reduce_scatter_tensor(block, whole.clone())
                assert torch.equal(block, integers(RANK, count, torch.float32) * COMM.size)


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("backend", ("mpi4py", "gloo", "ring(mpi4py)"))
def test_messages_in_pieces_keep_their_order(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pieces of one message come before those of the next with the same peer and tag."""
    monkeypatch.setenv("HPCCOMM_MAX_COUNT", "8")
    with world("A" * COMM.size, backend):
        received = [torch.zeros(9) for _ in range(3)]
        receiving = [dist.irecv(tensor, (RANK - 1) % COMM.size) for tensor in received]
        sending = [dist.isend(torch.full((9,), float(k)), (RANK + 1) % COMM.size) for k in range(3)]
        for work in receiving + sending:
            work.wait()
        assert [tensor.tolist() for tensor in received] == [[float(k)] * 9 for k in range(3)]


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("backend", ("mpi4py", "gloo", "ring(mpi4py)", "ring(gloo)", "failover(mpi4py, gloo)"))
def test_all_to_all_keeps_to_the_limit_too(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCCOMM_MAX_COUNT", "8")
    sizes: list[int] = []
    for leaf in (MpiBackend, GlooBackend):
        usual = leaf.send

        def send(self: object, buffer: torch.Tensor, *rest: int, usual: Callable[..., Operation] = usual) -> Operation:
            sizes.append(buffer.numel() * buffer.element_size())
            return usual(self, buffer, *rest)

        monkeypatch.setattr(leaf, "send", send)
    with world("A" * COMM.size, backend):
        outputs = [torch.zeros(5 * (rank + 1)) for rank in RANKS]
        dist.all_to_all(outputs, [torch.full((5 * (RANK + 1),), float(RANK)) for _ in RANKS])
        assert [output.tolist() for output in outputs] == [[float(rank)] * 5 * (rank + 1) for rank in RANKS]
    assert max(sizes) == 8


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize(
    ("backend", "second"),
    [
        *itertools.product(("mpi4py", "gloo", "ring(mpi4py)"), ("of one rank", "of any rank", "in one call")),
        *itertools.product(("failover(mpi4py, gloo)", "hierarchical(mpi4py, gloo)"), ("of one rank", "of any rank")),
    ],
)
def test_pieces_of_a_receive_from_any_rank_stay_together(
    backend: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HPCCOMM_MAX_COUNT", "8")
    sent = [torch.arange(4.0), torch.arange(2.0 if second == "in one call" else 4.0) + 10]
    with world("A" * COMM.size, backend):
        if RANK == 0:
            received = [torch.zeros_like(tensor) for tensor in sent]
            works = [dist.irecv(received[0]), dist.irecv(received[1], None if second == "of any rank" else 1)]
        dist.barrier()
        if RANK == 1:
            works = [dist.isend(tensor, 0) for tensor in sent]
        if RANK < 2:
            for work in works:
                assert work is not None
                work.wait()
        if RANK == 0:
            found = [tensor.tolist() for tensor in received]
            in_order = [tensor.tolist() for tensor in sent]
            asks = dist.group.WORLD._runner.backend.asks_senders  # then a receive of one rank is posted first
            assert found == in_order or (asks and found == in_order[::-1])
