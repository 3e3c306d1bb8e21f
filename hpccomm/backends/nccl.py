"""Leaf `nccl`: torch's NCCL on this rank's GPU.

Every call is queued in the stream that the thread works in, and ends for the host at once. It is built directly, never
through `new_group`, on the store that the context gives; its communicator is made when it is built, not at the first
call, which some ranks might not come to.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.base import BLOCKS_TAG, SCHEDULE_TAG, Backend, Operation, offsets
from hpccomm.backends.c10d import (
    AllgatherOptions,
    AllreduceOptions,
    AllToAllOptions,
    BroadcastOptions,
    GatherOptions,
    Op,
    ProcessGroupNCCL,
    ReduceOp,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)
from hpccomm.backends.context import Context
from hpccomm.backends.layout import as_bytes
from hpccomm.backends.nccl_ranks import meet
from hpccomm.backends.support import ARITHMETIC, HALVES, Support
from hpccomm.backends.uneven import gather_padded, reduce_whole
from hpccomm.errors import OptionError, UnsupportedError

NCCL_SUPPORT = Support(
    devices=frozenset({"cuda"}),
    reductions=dict.fromkeys(
        (torch.float64, torch.float32, *HALVES, torch.int8, torch.uint8, torch.int32, torch.int64), ARITHMETIC
    ),
    rounding="at every hop; 16-bit floats too, unless accumulate=float32",
    deadline="a watchdog on the GPU's events, which ends the job",
)
"""What NCCL reduces, through torch as through cupy."""

_OF_TORCH = timedelta(days=7)  # deadlines are ours


class NcclBackend(Backend):
    """NCCL's collectives.

    Args:
        context: The group.
        high_priority: Whether NCCL's kernels go before others that wait for the GPU.
        accumulate: ``native`` lets NCCL add 16-bit floats as they are; ``float32`` sums them in float32 and rounds
            once, for twice the bytes.
    """

    support = NCCL_SUPPORT

    def __init__(self, context: Context, *, high_priority: bool = False, accumulate: str = "native") -> None:
        super().__init__(context)
        self.support = accumulating("nccl", accumulate)
        meet(context, "nccl", "" if ProcessGroupNCCL else "torch is built without NCCL")
        self.is_urgent = high_priority
        self._group = _process_group(context, high_priority)
        self._batch = _Batch(self._group)
        self._joining = threading.Lock()

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Queue ncclAllReduce."""
        options = AllreduceOptions()
        options.reduceOp = ReduceOp(op)
        return _queued(lambda: self._group.allreduce([buffer], options))

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Queue ncclBroadcast."""
        options = BroadcastOptions()
        options.rootRank = root
        return _queued(lambda: self._group.broadcast([as_bytes(buffer)], options))

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Queue ncclReduceScatter; for unequal shares, ncclAllReduce of everything."""
        if counts is not None:
            start = offsets(counts)[self.rank]
            return reduce_whole(lambda whole: self.all_reduce(whole, op), output, source, start)
        options = ReduceScatterOptions()
        options.reduceOp = ReduceOp(op)
        flat = output.view(-1), source.view(-1)
        return _queued(lambda: self._group._reduce_scatter_base(*flat, options))

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Queue ncclAllGather; unequal shares travel padded to the largest."""
        if counts is None:
            return self._gather_equal(output, source)
        return gather_padded(self._gather_equal, output, source, counts)

    def _gather_equal(self, output: torch.Tensor, source: torch.Tensor) -> Operation:
        flat = as_bytes(output), as_bytes(source)
        return _queued(lambda: self._group._allgather_base(*flat, AllgatherOptions()))

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Queue ncclReduce."""
        options = ReduceOptions()
        options.reduceOp, options.rootRank = ReduceOp(op), root
        return _queued(lambda: self._group.reduce([buffer], options))

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Queue grouped sends and receives."""
        options = GatherOptions()
        options.rootRank = root
        sent = as_bytes(source)
        blocks = [] if output is None else [list(torch.split(as_bytes(output), max(sent.numel(), 1)))]
        return _queued(lambda: self._group.gather(blocks, [sent], options))

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Queue grouped sends and receives."""
        options = ScatterOptions()
        options.rootRank = root
        received = as_bytes(output)
        blocks = [] if source is None else [list(torch.split(as_bytes(source), max(received.numel(), 1)))]
        return _queued(lambda: self._group.scatter([received], blocks, options))

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Queue grouped sends and receives."""
        width = output.element_size()
        sizes = [[count * width for count in counts] for counts in (received, sent)]
        flat = as_bytes(output), as_bytes(source)
        return _queued(lambda: self._group.alltoall_base(*flat, *sizes, AllToAllOptions()))

    def barrier(self) -> Operation:
        """Reduce one element, and wait for the GPU."""
        return barrier_on(self)

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Queue ncclSend, grouped with what is begun before anything of it is waited for."""
        return self._exchange("send", buffer, dest, tag)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Queue ncclRecv, grouped likewise."""
        return self._exchange("recv", buffer, source, tag)

    def _exchange(self, move: str, buffer: torch.Tensor, peer: int, tag: int) -> Operation:
        refuse_tag(self, tag)
        with self._joining:
            batch = self._batch
            batch.add(move, as_bytes(buffer), peer)
        yield "what is queued together with it"
        with self._joining:
            if batch is self._batch:
                self._batch = _Batch(self._group)
                batch.queue()
        batch.wait()

    def close(self) -> None:
        """Destroy the communicator; after a failure, without waiting for the other ranks."""
        if self.context.health.broken:
            self._group.abort()
        else:
            self._group.shutdown()
        super().close()


class _Batch:
    """Messages of one group call, without which those in opposite directions would wait for each other."""

    def __init__(self, group: Any) -> None:
        self._group = group
        self._messages: list[tuple[str, torch.Tensor, int]] = []
        self._work: Any = None

    def add(self, move: str, data: torch.Tensor, peer: int) -> None:
        self._messages.append((move, data, peer))

    def queue(self) -> None:
        self._group._start_coalescing()
        for move, data, peer in self._messages:
            getattr(self._group, move)([data], peer, 0)
        self._work = self._group._end_coalescing()

    def wait(self) -> None:
        if self._work is not None:
            self._work.wait()


def accumulating(name: str, accumulate: str) -> Support:
    """Give what NCCL reduces itself, with or without 16-bit floats.

    Raises:
        OptionError: `accumulate` is neither ``native`` nor ``float32``.
    """
    if accumulate not in ("native", "float32"):
        raise OptionError(
            f"build backend {name}(accumulate={accumulate})",
            found=f"{accumulate!r}",
            remedy="give native or float32",
            everywhere=True,
        )
    return NCCL_SUPPORT if accumulate == "native" else NCCL_SUPPORT.without(HALVES)


def barrier_on(backend: Backend) -> Operation:
    """Have a backend reduce one element on its GPU, and wait on the host until that has come past it."""
    yield from backend.all_reduce(torch.zeros(1, dtype=torch.int32, device=backend.context.device), ReduceOp.SUM)
    event = torch.cuda.current_stream().record_event()
    while not event.query():
        yield "the GPU"


def refuse_tag(backend: Backend, tag: int) -> None:
    """Refuse users' tags: NCCL matches messages between two ranks in the order in which they are queued."""
    if tag not in (0, SCHEDULE_TAG, BLOCKS_TAG):
        raise UnsupportedError(
            f"send or receive with tag {tag} over {backend.expression}",
            found="NCCL has no tags",
            remedy="leave the tag out, and receive in the order of the sends",
        )


def _queued(begin: Callable[[], Any]) -> Operation:
    """Queue a call, and have the stream that this thread works in wait for it."""
    begin().wait()
    yield from ()


def _process_group(context: Context, high_priority: bool) -> Any:
    options = ProcessGroupNCCL.Options(is_high_priority_stream=high_priority)
    options._timeout = _OF_TORCH
    topology = context.topology
    with torch.cuda.device(context.device):
        group = ProcessGroupNCCL(context.store, topology.rank, topology.world_size, options)
        group.bound_device_id = context.device
        group.eager_connect_single_device(context.device)
    return group
