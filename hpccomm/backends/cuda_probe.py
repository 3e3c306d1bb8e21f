"""One element of a GPU's memory through every MPI call that is used: ``python -m hpccomm.backends.cuda_probe cuda:0``.

It runs as a process of its own and as MPI's only rank, since a library that is not CUDA-aware reads the address as one
of the host's, and crashes. It prints ``begun`` before the first call, and ``yes``, or ``no:`` or
``unknown:`` with the reason, at the end.
"""

from __future__ import annotations

import sys
from typing import Any

VALUE = 7.0
BEGUN = "begun"


def probe(device: str) -> str:
    """Try all calls on a device's memory, and give the line."""
    try:
        import torch
        from mpi4py import MPI

        tensors = [torch.full((1,), VALUE, device=device) for _ in range(2)]
    except (ImportError, RuntimeError, AssertionError) as error:  # of a torch without CUDA: AssertionError
        return f"unknown: {str(error).splitlines()[0]}"
    print(BEGUN, flush=True)
    for name, call in _calls(MPI):
        tensors[0].fill_(VALUE)
        tensors[1].zero_()
        if tensors[0].is_cuda:
            torch.cuda.synchronize()
        try:
            result = tensors[call(*[_memory(MPI, tensor) for tensor in tensors])].item()
        except MPI.Exception as error:
            return f"no: {name} raises {error}"
        if result != VALUE:
            return f"no: {name} gives {result:g} for {VALUE:g}"
    return "yes"


def _memory(mpi: Any, tensor: Any) -> list[Any]:
    return [mpi.memory.fromaddress(tensor.data_ptr(), tensor.element_size()), 1, mpi.FLOAT]


def _calls(mpi: Any) -> list[tuple[str, Any]]:
    """List the calls by name; each takes two buffers and gives the number of the one that must hold the value then."""
    comm = mpi.COMM_SELF

    def exchange(one: Any, other: Any) -> int:
        mpi.Request.Waitall([comm.Irecv(other, 0), comm.Isend(one, 0)])
        return 1

    def of(name: str, *more: Any) -> tuple[str, Any]:
        def call(one: Any, other: Any) -> int:
            getattr(comm, name)(one, other, *more)
            return 1

        return f"MPI_{name}", call

    def in_place(one: Any, _: Any) -> int:
        comm.Allreduce(mpi.IN_PLACE, one, mpi.SUM)
        return 0

    def broadcast(one: Any, _: Any) -> int:
        comm.Ibcast(one, 0).Wait()
        return 0

    return [
        ("MPI_Isend and MPI_Irecv", exchange),
        ("MPI_Allreduce", in_place),
        ("MPI_Ibcast", broadcast),
        of("Reduce", mpi.SUM, 0),
        of("Reduce_scatter_block", mpi.SUM),
        of("Allgather"),
        of("Gather", 0),
        of("Scatter", 0),
    ]


if __name__ == "__main__":
    print(probe(sys.argv[1]), flush=True)
