"""Leaf `nccl`: torch's NCCL on this rank's GPU.

Every call is queued in the stream that the thread works in, and ends for the host at once. It is built directly, never
through `new_group`, on the store that the context gives; its communicator is made when it is built, not at the first
call, which some ranks might not come to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.base import Operation
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
from hpccomm.backends.nccl_common import (
    NCCL_SUPPORT,
    Message,
    Messages,
    NcclMessaging,
    Wait,
    accumulating,
)
from hpccomm.backends.nccl_ranks import meet

_OF_TORCH = timedelta(days=7)  # deadlines are ours


class NcclBackend(NcclMessaging):
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
        self._messages = Messages(self._exchange)

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Queue ncclAllReduce."""
        options = AllreduceOptions()
        options.reduceOp = ReduceOp(op)
        return self._queued(lambda: self._group.allreduce([buffer], options))

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Queue ncclBroadcast."""
        options = BroadcastOptions()
        options.rootRank = root
        return self._queued(lambda: self._group.broadcast([as_bytes(buffer)], options))

    def _reduce_scatter_equal(self, output: torch.Tensor, source: torch.Tensor, op: Op) -> Operation:
        options = ReduceScatterOptions()
        options.reduceOp = ReduceOp(op)
        flat = output.view(-1), source.view(-1)
        return self._queued(lambda: self._group._reduce_scatter_base(*flat, options))

    def _gather_equal(self, output: torch.Tensor, source: torch.Tensor) -> Operation:
        flat = as_bytes(output), as_bytes(source)
        return self._queued(lambda: self._group._allgather_base(*flat, AllgatherOptions()))

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Queue ncclReduce."""
        options = ReduceOptions()
        options.reduceOp, options.rootRank = ReduceOp(op), root
        return self._queued(lambda: self._group.reduce([buffer], options))

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Queue grouped sends and receives."""
        options = GatherOptions()
        options.rootRank = root
        sent = as_bytes(source)
        blocks = [] if output is None else [list(torch.split(as_bytes(output), max(sent.numel(), 1)))]
        return self._queued(lambda: self._group.gather(blocks, [sent], options))

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Queue grouped sends and receives."""
        options = ScatterOptions()
        options.rootRank = root
        received = as_bytes(output)
        blocks = [] if source is None else [list(torch.split(as_bytes(source), max(received.numel(), 1)))]
        return self._queued(lambda: self._group.scatter([received], blocks, options))

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Queue grouped sends and receives."""
        width = output.element_size()
        sizes = [[count * width for count in counts] for counts in (received, sent)]
        flat = as_bytes(output), as_bytes(source)
        return self._queued(lambda: self._group.alltoall_base(*flat, *sizes, AllToAllOptions()))

    def _exchange(self, messages: Sequence[Message]) -> Wait:
        self._group._start_coalescing()
        for move, data, peer in messages:
            getattr(self._group, move)([data], peer, 0)
        work = self._group._end_coalescing()
        return work.wait  # type: ignore[no-any-return]

    def _queued(self, begin: Callable[[], Any]) -> Operation:
        """Queue a call, and have the stream that this thread works in wait for it."""
        with self._messages.lock:
            work = begin()
        work.wait()
        yield from ()

    def close(self) -> None:
        """Destroy the communicator; after a failure, without waiting for the other ranks."""
        if self.context.health.broken:
            self._group.abort()
        else:
            self._group.shutdown()
        super().close()


def _process_group(context: Context, high_priority: bool) -> Any:
    options = ProcessGroupNCCL.Options(is_high_priority_stream=high_priority)
    options._timeout = _OF_TORCH
    options.config.blocking = 1  # what goes wrong between the ranks is raised here
    topology = context.topology
    with torch.cuda.device(context.device):
        group = ProcessGroupNCCL(context.store, topology.rank, topology.world_size, options)
        group.bound_device_id = context.device
        group.eager_connect_single_device(context.device)
    return group
