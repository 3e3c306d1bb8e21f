"""Leaf `mpi4py`: the MPI library's own collectives on host memory, and on a GPU's where the library takes that.

Collectives wait for all ranks by a polled barrier and then make the library's blocking call ("arrive, then run"): the
library's blocking reductions are faster than its non-blocking ones, and a rank that never arrives is noticed. Small
all-reduces are persistent ones, and they and movements with one source (broadcast, send, recv) are polled throughout.
MPI is imported only when the backend is built, since importing mpi4py.MPI may start MPI.

MPI knows no streams: before it sees an address of a GPU's memory, to read or to write, all work of the stream that the
operation is stepped in has ended. Non-blocking reductions are not asked of such memory, as libraries with support for
it lack it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from hpccomm.backends.base import PREPARES, Backend, LibraryCall, Operation, offsets
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.context import Context
from hpccomm.backends.device import Device
from hpccomm.backends.prepared import prepare
from hpccomm.backends.support import ARITHMETIC, BITWISE, INTEGERS, Support
from hpccomm.backends.turns import Turns
from hpccomm.errors import BackendError
from hpccomm.watch.held import held

if TYPE_CHECKING:
    from mpi4py import MPI

_OP_NAMES = {
    ReduceOp.SUM: "SUM",
    ReduceOp.PRODUCT: "PROD",
    ReduceOp.MIN: "MIN",
    ReduceOp.MAX: "MAX",
    ReduceOp.BAND: "BAND",
    ReduceOp.BOR: "BOR",
    ReduceOp.BXOR: "BXOR",
}
_TYPE_NAMES = {
    torch.float64: "DOUBLE",
    torch.float32: "FLOAT",
    torch.int8: "INT8_T",
    torch.int16: "INT16_T",
    torch.int32: "INT32_T",
    torch.int64: "INT64_T",
    torch.uint8: "UINT8_T",
    torch.uint16: "UINT16_T",
    torch.uint32: "UINT32_T",
    torch.uint64: "UINT64_T",
}

# Open MPI's vector kernels saturate sums of 8- and 16-bit integers where they should wrap; these are summed wider.
_NARROW = frozenset({torch.int8, torch.uint8, torch.int16, torch.uint16})
_WRAPPING = frozenset({ReduceOp.SUM, ReduceOp.PRODUCT})

# Up to this size a polled non-blocking all-reduce costs no more than arriving first and reducing then.
_POLLED_BYTES = 4096

# Requests given up at a deadline, with the memory that MPI may still touch.
_ABANDONED: list[tuple[Any, ...]] = []


def _operators(dtype: torch.dtype) -> frozenset[Op]:
    if dtype not in INTEGERS:
        return ARITHMETIC
    return (ARITHMETIC | BITWISE) - (_WRAPPING if dtype in _NARROW else frozenset())


class MpiBackend(Backend):
    """MPI's collectives over the group's own communicator.

    16-bit and 8-bit floats are reduced in float32 and rounded once: MPI has no portable type for them.

    Args:
        context: The group.
        device: The GPU whose memory the library takes; None for none.
    """

    support = Support(
        devices=frozenset({"cpu"}),
        reductions={dtype: _operators(dtype) for dtype in _TYPE_NAMES},
        rounding="float32 and float64 at every addition; narrower floats once",
        deadline="arrival of all ranks is polled; inside the library's call it is not held",
    )

    def __init__(self, context: Context, device: Device | None = None) -> None:
        super().__init__(context)
        self._device, self._turns = device, Turns()
        if device is not None:
            self.support = replace(self.support, devices=frozenset({"cpu", "cuda"}))
        if context.communicator is None:
            raise BackendError(
                "build backend mpi4py",
                found="the ranks were not started by MPI",
                remedy="start them with mpirun or srun, or use gloo",
                everywhere=True,
            )
        from mpi4py import MPI

        self._comm: MPI.Intracomm = context.communicator
        with held.over(f"prepare {self.expression or 'mpi4py'}", context.timeout_s, lambda: "all ranks"):
            self._prepared = prepare(context.communicator)
        if self._prepared is not None:
            self.prepared = self._prepared.reductions
        self._may_block = MPI.Query_thread() == MPI.THREAD_MULTIPLE
        self._in_place = MPI.IN_PLACE
        self._at = MPI.buffer.fromaddress
        self._byte = MPI.BYTE
        self._new_status, self._any_source = MPI.Status, MPI.ANY_SOURCE
        self._ops: dict[Op, MPI.Op] = {op: getattr(MPI, name) for op, name in _OP_NAMES.items()}
        self._types: dict[torch.dtype, tuple[MPI.Datatype, int]] = {
            dtype: (getattr(MPI, name), dtype.itemsize) for dtype, name in _TYPE_NAMES.items()
        }

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Call MPI_Allreduce in place, or for small buffers start a prepared one and poll."""
        (kind, width), count = self._types[buffer.dtype], buffer.numel()
        is_small = count * width <= _POLLED_BYTES and not self._is_far(buffer)
        if is_small and self._prepared is not None:
            yield from self._prepared.reduction(buffer, op, kind, self._ops[op]).run(buffer)
            return
        arguments = self._in_place, [self._at(buffer.data_ptr(), count * width), count, kind], self._ops[op]
        if is_small:
            yield from self._complete(self._comm.Iallreduce(*arguments), "all ranks to arrive", buffer)
        else:
            yield from self._collective("Allreduce", arguments, buffer)

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Call MPI_Ibcast and poll."""
        if self._device is not None:
            yield from self._settled(buffer)
        yield from self._complete(self._comm.Ibcast(self._bytes(buffer), root), f"rank {root}", buffer)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Call MPI_Reduce_scatter, or MPI_Reduce_scatter_block for equal shares."""
        send, receive = self._typed(source), self._typed(output)
        if counts is None:
            send = [self._memory(source), self._types[source.dtype][0]]  # a count here would mean one block's
            yield from self._collective("Reduce_scatter_block", (send, receive, self._ops[op]), source, output)
        else:
            yield from self._collective("Reduce_scatter", (send, receive, counts, self._ops[op]), source, output)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Call MPI_Allgather, or MPI_Allgatherv for unequal shares."""
        width = output.element_size()
        shares = counts if counts is not None else [source.numel()] * self.size
        starts = offsets([count * width for count in shares])
        in_place = source.data_ptr() == output.data_ptr() + starts[self.rank]
        send = self._in_place if in_place and source.numel() else self._bytes(source)
        if counts is None:
            yield from self._collective("Allgather", (send, [self._memory(output), self._byte]), source, output)
        else:
            receive = [self._memory(output), ([count * width for count in counts], starts[:-1]), self._byte]
            yield from self._collective("Allgatherv", (send, receive), source, output)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Call MPI_Ireduce and poll; on a GPU's memory arrive and call MPI_Reduce."""
        send, receive = (self._in_place, self._typed(buffer)) if root == self.rank else (self._typed(buffer), None)
        if self._is_far(buffer):
            yield from self._collective("Reduce", (send, receive, self._ops[op], root), buffer)
            return
        yield from self._complete(self._comm.Ireduce(send, receive, self._ops[op], root), "the other ranks", buffer)

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Call MPI_Igather and poll."""
        into = None if output is None else [self._memory(output), self._byte]
        memory = [tensor for tensor in (source, output) if tensor is not None]
        if self._device is not None:
            yield from self._settled(source)
        yield from self._complete(self._comm.Igather(self._bytes(source), into, root), "the other ranks", *memory)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Call MPI_Iscatter and poll."""
        out = None if source is None else [self._memory(source), self._byte]
        memory = [tensor for tensor in (output, source) if tensor is not None]
        if self._device is not None:
            yield from self._settled(output)
        yield from self._complete(self._comm.Iscatter(out, self._bytes(output), root), f"rank {root}", *memory)

    def barrier(self) -> Operation:
        """Start a prepared barrier, or call MPI_Ibarrier, and poll."""
        return self._arrival()

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Call MPI_Isend and poll."""
        if self._is_far(buffer):
            return self._turns.take(("send", dest), self._settled(buffer), lambda: self._send(buffer, dest, tag))
        return self._send(buffer, dest, tag)

    def _send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        yield from self._complete(self._comm.Isend(self._bytes(buffer), dest, tag), f"rank {dest}", buffer)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Call MPI_Irecv and poll."""
        return self._recv(buffer, source, tag, [])

    def recv_any(self, buffer: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Call MPI_Irecv with MPI_ANY_SOURCE and poll."""
        return self._recv(buffer, self._any_source, tag, found)

    def _recv(self, buffer: torch.Tensor, source: int, tag: int, found: list[int]) -> Operation:
        if self._is_far(buffer):
            receive = partial(self._receive, buffer, source, tag, found)
            return self._turns.take("recv", self._settled(buffer), receive)
        return self._receive(buffer, source, tag, found)

    def _receive(self, buffer: torch.Tensor, source: int, tag: int, found: list[int]) -> Operation:
        request, status = self._comm.Irecv(self._bytes(buffer), source, tag), self._new_status()
        of = "any rank" if source == self._any_source else f"rank {source}"
        yield from self._complete(request, f"a message of {of}", buffer, status=status)
        found.append(status.Get_source())
        sent, wanted = status.Get_count(self._byte), buffer.numel() * buffer.element_size()
        if sent != wanted:
            raise BackendError(
                f"receive {wanted} bytes of rank {found[-1]}",
                found=f"it sent {sent} bytes",
                remedy="give send and recv tensors of one size and dtype",
            )

    def close(self) -> None:
        """Free communicator and prepared collectives, or leave them where an operation was given up."""
        prepared = self._prepared
        is_busy = prepared is not None and prepared.busy
        if is_busy or any(self._comm is communicator for communicator, *_ in _ABANDONED):
            self.context.communicator = None
        elif prepared is not None:
            prepared.free()
        super().close()

    def _collective(self, name: str, arguments: tuple[Any, ...], *memory: torch.Tensor) -> Operation:
        """Arrive, then make the library's blocking call; where threads must not call at once, poll throughout."""
        if self._device is not None:
            yield from self._settled(memory[0])
        if self._may_block:
            yield from self._arrival()
            try:
                yield LibraryCall(self._call_of(name, arguments, memory[0]), f"MPI_{name}")
            except GeneratorExit:  # the call may go on
                _ABANDONED.append((self._comm, None, memory))
                raise
        else:
            request = getattr(self._comm, f"I{name.lower()}")(*arguments)
            yield from self._complete(request, "all ranks to arrive", *memory)

    def _call_of(self, name: str, arguments: tuple[Any, ...], memory: torch.Tensor) -> Callable[[float], object]:
        """Give what makes a call, in whatever thread; there the GPU must be the current one."""
        method, device = getattr(self._comm, name), self._device
        if device is None or not device.owns(memory):
            return lambda _: method(*arguments)
        stream = device.current()

        def call(_: float) -> None:
            with device.on(stream):
                method(*arguments)

        return call

    def _is_far(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is in a GPU's memory."""
        return self._device is not None and self._device.owns(tensor)

    def _settled(self, tensor: torch.Tensor) -> Operation:
        """Wait until a GPU has come past all work that may still touch a tensor's memory."""
        device = self._device
        if device is not None and device.owns(tensor):
            event = device.record(device.current())
            while not event.query():
                yield PREPARES

    def _arrival(self) -> Operation:
        if self._prepared is not None:
            yield from self._prepared.barrier.run()
        else:
            yield from self._complete(self._comm.Ibarrier(), "all ranks to arrive")

    def _complete(
        self, request: MPI.Request, what: str, *memory: torch.Tensor, status: MPI.Status | None = None
    ) -> Operation:
        try:
            while not request.Test(status):
                yield what
        except BaseException:  # given up, or interrupted in here
            _ABANDONED.append((self._comm, request, memory))
            raise

    def _memory(self, tensor: torch.Tensor) -> MPI.buffer:
        return self._at(tensor.data_ptr(), tensor.numel() * tensor.element_size())

    def _typed(self, tensor: torch.Tensor) -> list[Any]:
        return [self._memory(tensor), tensor.numel(), self._types[tensor.dtype][0]]

    def _bytes(self, tensor: torch.Tensor) -> list[Any]:
        return [self._memory(tensor), tensor.numel() * tensor.element_size(), self._byte]
