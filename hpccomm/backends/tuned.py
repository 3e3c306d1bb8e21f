"""Several backends, of which a tuning table says which is the fastest for a collective and size; `auto` builds it."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.c10d import Op
from hpccomm.backends.carried import CarriedBackend
from hpccomm.backends.context import Context
from hpccomm.backends.registry import build
from hpccomm.backends.support import HALVES, Support
from hpccomm.exchange import Exchange, MpiExchange, together
from hpccomm.expression import parse
from hpccomm.topology import Topology
from hpccomm.tuning import Setup, Tuning
from hpccomm.units import format_bytes

_PROCESSOR = "model name"


def setup_of(exchange: Exchange, topology: Topology, device: torch.device) -> Setup:
    """Describe what the times of these ranks' operations depend on; collective."""
    mpi = "none"
    if isinstance(exchange, MpiExchange):
        from mpi4py import MPI

        vendor, version = MPI.get_vendor()
        mpi = f"{vendor} {'.'.join(map(str, version))}"
    return Setup(topology.sizes, exchange.all_gather(_processor())[0], device.type, torch.__version__, mpi)


def _processor() -> str:
    """Name this host's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith(_PROCESSOR)]
    return models[0] if models else platform.machine()


class TunedBackend(CarriedBackend):
    """The backends of a table; what one of them does not reduce, none is asked for.

    Args:
        context: The group.
        tuning: The table.
        name: The table's, for the note.
    """

    def __init__(self, context: Context, tuning: Tuning, name: str) -> None:
        super().__init__(context)
        self._tuning = tuning
        self._built = {text: self._part(text, f"tuned{number}") for number, text in enumerate(tuning.backends())}
        self.support = _support([backend.support for backend in self._built.values()])
        self.max_count = min(backend.max_count for backend in self._built.values())
        self._carrier = self._for("all_reduce", 0)
        chosen = ", ".join(f"{backend} from {format_bytes(size)}" for size, backend in tuning.choices["all_reduce"])
        notes = [note for backend in self._built.values() for note in backend.notes]
        self.notes = [f"backends by {name}; all_reduce: {chosen}", *notes]

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Use the fastest."""
        return self._of("all_reduce", buffer).all_reduce(buffer, op)

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Use the fastest."""
        return self._of("broadcast", buffer).broadcast(buffer, root)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Use the fastest."""
        return self._of("reduce", buffer).reduce(buffer, op, root)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Use the fastest."""
        return self._of("reduce_scatter", source).reduce_scatter(output, source, op, counts)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Use the fastest."""
        return self._of("all_gather", output).all_gather(output, source, counts)

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Use the fastest."""
        return self._of("gather", source, self.size).gather(output, source, root)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Use the fastest."""
        return self._of("scatter", output, self.size).scatter(output, source, root)

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Use the fastest for the largest size: ranks may send different sizes, and must take one backend."""
        return self._for("all_to_all", 2**62).all_to_all(output, source, sent, received)

    def close(self) -> None:
        """Close all of them."""
        for backend in self._built.values():
            if backend is not self._carrier:
                backend.close()
        super().close()

    def _part(self, text: str, name: str) -> Backend:
        """Build one; where some rank cannot, none goes on to the next, in which it would be waited for."""
        return together(self.context.exchange, lambda: build(parse(text), self.context.child(name)))

    def _of(self, collective: str, tensor: torch.Tensor, times: int = 1) -> Backend:
        return self._for(collective, tensor.numel() * tensor.element_size() * times)

    def _for(self, collective: str, size_bytes: int) -> Backend:
        return self._built[self._tuning.backend(collective, size_bytes)]


def _support(all_of_them: Sequence[Support]) -> Support:
    """Give what all of them reduce; 16-bit floats are widened alike, so that a size does not change the rounding."""
    return reduce(Support.joined, all_of_them).without(HALVES)
