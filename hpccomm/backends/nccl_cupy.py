"""Leaf `nccl_cupy`: NCCL through cupy, whose communicator takes bare addresses and a stream.

Calls are queued in torch's current stream, so that they stand in order with torch's own work. Arrays of cupy and torch
share memory by ``torch.from_dlpack``, without a copy. cupy is imported when the backend is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.context import Context
from hpccomm.backends.nccl_common import NCCL_SUPPORT, Message, Messages, NcclMessaging, Wait, accumulating
from hpccomm.backends.nccl_ranks import meet
from hpccomm.backends.support import Support

_OP_NAMES = {ReduceOp.SUM: "SUM", ReduceOp.PRODUCT: "PROD", ReduceOp.MIN: "MIN", ReduceOp.MAX: "MAX"}
_TYPE_NAMES = {
    torch.float64: "FLOAT64",
    torch.float32: "FLOAT32",
    torch.float16: "FLOAT16",
    torch.bfloat16: "BFLOAT16",
    torch.int8: "INT8",
    torch.uint8: "UINT8",
    torch.int32: "INT32",
    torch.int64: "INT64",
}


def build_nccl_cupy(context: Context, *, accumulate: str = "native") -> Backend:
    """Make a communicator of the group's ranks; collective.

    Args:
        context: The group.
        accumulate: As `nccl` takes it.

    Raises:
        BackendError: The same on all ranks: one has no cupy or no GPU of its own.
    """
    support = accumulating("nccl_cupy", accumulate)
    meet(context, "nccl_cupy", "" if find_spec("cupy") else "cupy is not installed (extra cuda12 or cuda13)")
    return NcclCupyBackend(context, import_module("cupy.cuda.nccl"), support)


class NcclCupyBackend(NcclMessaging):
    """NCCL's collectives on addresses.

    Args:
        context: The group.
        nccl: The module ``cupy.cuda.nccl``; of some versions of cupy it lacks bfloat16, which goes as float32 then.
        support: What of NCCL's reductions is used.
    """

    def __init__(self, context: Context, nccl: Any, support: Support = NCCL_SUPPORT) -> None:
        super().__init__(context)
        self._nccl = nccl
        self._types = {dtype: getattr(nccl, f"NCCL_{name}", None) for dtype, name in _TYPE_NAMES.items()}
        self.support = support.without(frozenset(dtype for dtype, kind in self._types.items() if kind is None))
        self._ops = {op: getattr(nccl, f"NCCL_{name}") for op, name in _OP_NAMES.items()}
        self._byte = nccl.NCCL_UINT8
        identity = context.exchange.all_gather(nccl.get_unique_id() if self.rank == 0 else None)[0]
        with self._on_device():
            self._communicator = nccl.NcclCommunicator(self.size, identity, self.rank)
        self._messages = Messages(self._exchange)

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Queue ncclAllReduce in place."""
        return self._queued("allReduce", buffer, buffer, buffer.numel(), self._types[buffer.dtype], self._ops[op])

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Queue ncclBroadcast in place."""
        return self._queued("broadcast", buffer, buffer, _width(buffer), self._byte, root)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Queue ncclReduce in place."""
        kind = self._types[buffer.dtype]
        return self._queued("reduce", buffer, buffer, buffer.numel(), kind, self._ops[op], root)

    def _reduce_scatter_equal(self, output: torch.Tensor, source: torch.Tensor, op: Op) -> Operation:
        kind = self._types[source.dtype]
        return self._queued("reduceScatter", source, output, output.numel(), kind, self._ops[op])

    def _gather_equal(self, output: torch.Tensor, source: torch.Tensor) -> Operation:
        return self._queued("allGather", source, output, _width(source), self._byte)

    def _queued(self, name: str, sent: torch.Tensor, received: torch.Tensor, *arguments: Any) -> Operation:
        """Queue a call in the stream that this thread works in."""
        with self._messages.lock:
            getattr(self._communicator, name)(sent.data_ptr(), received.data_ptr(), *arguments, self._stream())
        yield from ()

    def _exchange(self, messages: Sequence[Message]) -> Wait:
        """Queue a group in the stream that this thread works in, where all operations of the group are stepped."""
        self._nccl.groupStart()
        try:
            for move, data, peer in messages:
                call = getattr(self._communicator, move)
                call(data.data_ptr(), data.numel(), self._byte, peer, self._stream())
        finally:
            self._nccl.groupEnd()
        return lambda: None

    def close(self) -> None:
        """Destroy the communicator; after a failure, without waiting for the other ranks."""
        if self.context.health.broken:
            self._communicator.abort()
        else:
            self._communicator.destroy()
        super().close()

    def _on_device(self) -> Any:
        return torch.cuda.device(self.context.device)

    def _stream(self) -> int:
        return torch.cuda.current_stream(self.context.device).cuda_stream


def _width(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
