"""A stand-in for ``cupy.cuda.nccl`` that moves host memory over MPI, to see what it is asked for.

It takes addresses as cupy does, so that a wrong address, count or type gives wrong values. Messages outside a group
wait for their receivers, as NCCL's may.
"""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

NCCL_INT8, NCCL_UINT8, NCCL_INT32, NCCL_INT64, NCCL_FLOAT16, NCCL_FLOAT32, NCCL_FLOAT64 = 0, 1, 2, 4, 6, 7, 8
NCCL_SUM, NCCL_PROD, NCCL_MAX, NCCL_MIN = range(4)
_TYPES = {
    NCCL_INT8: MPI.INT8_T,
    NCCL_UINT8: MPI.UINT8_T,
    NCCL_INT32: MPI.INT32_T,
    NCCL_INT64: MPI.INT64_T,
    NCCL_FLOAT32: MPI.FLOAT,
    NCCL_FLOAT64: MPI.DOUBLE,
}
_OPS = {NCCL_SUM: MPI.SUM, NCCL_PROD: MPI.PROD, NCCL_MAX: MPI.MAX, NCCL_MIN: MPI.MIN}
STREAM = 77
_group: list[MPI.Request] | None = None


def get_unique_id() -> tuple[int, ...]:
    return (7,) * 128


def groupStart() -> None:
    global _group
    assert _group is None
    _group = []


def groupEnd() -> None:
    global _group
    assert _group is not None
    MPI.Request.Waitall(_group)
    _group = None


def _memory(address: int, count: int, kind: int) -> list[Any]:
    return [MPI.memory.fromaddress(address, count * _TYPES[kind].Get_size()), count, _TYPES[kind]]


class NcclCommunicator:
    def __init__(self, size: int, identity: tuple[int, ...], rank: int) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        assert (size, identity, rank) == (self._comm.size, get_unique_id(), self._comm.rank)

    def allReduce(self, sent: int, received: int, count: int, kind: int, op: int, stream: int) -> None:
        assert (sent, stream) == (received, STREAM)
        self._comm.Allreduce(MPI.IN_PLACE, _memory(received, count, kind), _OPS[op])

    def reduce(self, sent: int, received: int, count: int, kind: int, *rest: int) -> None:
        op, root, stream = rest
        assert (sent, stream) == (received, STREAM)
        memory = _memory(received, count, kind)
        source, into = (MPI.IN_PLACE, memory) if root == self._comm.rank else (memory, None)
        self._comm.Reduce(source, into, _OPS[op], root)

    def broadcast(self, sent: int, received: int, count: int, kind: int, root: int, stream: int) -> None:
        assert (sent, stream) == (received, STREAM)
        self._comm.Bcast(_memory(received, count, kind), root)

    def reduceScatter(self, sent: int, received: int, count: int, kind: int, op: int, stream: int) -> None:
        assert stream == STREAM
        whole = _memory(sent, count * self._comm.size, kind)
        self._comm.Reduce_scatter_block([whole[0], whole[2]], _memory(received, count, kind), _OPS[op])

    def allGather(self, sent: int, received: int, count: int, kind: int, stream: int) -> None:
        assert stream == STREAM
        size = _TYPES[kind].Get_size()
        in_place = sent == received + self._comm.rank * count * size
        source = MPI.IN_PLACE if in_place else _memory(sent, count, kind)
        self._comm.Allgather(source, [_memory(received, count * self._comm.size, kind)[0], _TYPES[kind]])

    def send(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        assert stream == STREAM and _group is not None
        _group.append(self._comm.Issend(_memory(address, count, kind), peer))

    def recv(self, address: int, count: int, kind: int, peer: int, stream: int) -> None:
        assert stream == STREAM and _group is not None
        _group.append(self._comm.Irecv(_memory(address, count, kind), peer))

    def destroy(self) -> None:
        self._comm.Free()

    abort = destroy
