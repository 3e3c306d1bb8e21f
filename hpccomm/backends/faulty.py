"""Combinator `faulty(x, KIND, rank=1, call=3)`, `faulty(x, KIND(at=inside))`: a backend that fails on purpose.

Kinds: ``raise`` an error, ``wrong`` result (one flipped bit), ``hang`` for ever, be ``late`` by some seconds, ``stop``
the process as SIGSTOP does. The fault strikes one rank or all, at one call, at every call, or at calls drawn by a seed,
of one operation or of all (`fault` has what a kind may say): before the operation, inside it (when it first waits), or
after it; or when the backend is built.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

import torch

from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.c10d import Op
from hpccomm.backends.context import Context
from hpccomm.backends.fault import fault_of
from hpccomm.backends.layout import as_bytes
from hpccomm.backends.registry import build
from hpccomm.errors import BackendError, OptionError
from hpccomm.expression import Expression


class FaultyBackend(Backend):
    """Pass everything on to another backend, and strike.

    Args:
        context: The group.
        inner: The backend that does the work.
        kind: What strikes, and when, as `fault` reads it; ``wrong`` is after the operation in any case.
        rank: The rank of the group that the fault strikes; -1 strikes all.
        call: The number of the call that it strikes, counted from 1; 0 strikes every call.
        seconds: How late `late` is.
    """

    def __init__(
        self,
        context: Context,
        inner: Expression,
        kind: Expression,
        *,
        rank: int = 1,
        call: int = 0,
        seconds: float = 1.0,
    ) -> None:
        super().__init__(context)
        self._fault = fault_of(kind, inner)
        if not -1 <= rank < self.size or call < 0 or seconds < 0:
            raise OptionError(
                f"build backend faulty({inner}, {kind}, rank={rank}, call={call}, seconds={seconds})",
                found=f"a group of {self.size} ranks",
                remedy="give a rank of the group (-1: all), a call from 1 (0: every call), and seconds from 0",
                everywhere=True,
            )
        self._inner = build(inner, context.child("inner"))
        self.support, self.max_count = self._inner.support, self._inner.max_count
        self.checks, self.notes = self._inner.checks, self._inner.notes
        self._is_struck, self._call, self._seconds = rank in (-1, self.rank), call, seconds
        if self._is_struck and self._fault.at == "construction":
            for _ in self._strike():
                time.sleep(0.01)

    @property
    def fell_back(self) -> Sequence[str]:  # type: ignore[override]
        """Those of the backend inside."""
        return self._inner.fell_back

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Pass on, or fail."""
        return self._struck("all_reduce", self._inner.all_reduce(buffer, op), buffer)

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Pass on, or fail."""
        return self._struck("broadcast", self._inner.broadcast(buffer, root), buffer)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Pass on, or fail."""
        return self._struck("reduce_scatter", self._inner.reduce_scatter(output, source, op, counts), output)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Pass on, or fail."""
        return self._struck("all_gather", self._inner.all_gather(output, source, counts), output)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Pass on, or fail."""
        return self._struck("reduce", self._inner.reduce(buffer, op, root), buffer)

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Pass on, or fail."""
        return self._struck("gather", self._inner.gather(output, source, root), output)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Pass on, or fail."""
        return self._struck("scatter", self._inner.scatter(output, source, root), output)

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Pass on, or fail."""
        return self._struck("all_to_all", self._inner.all_to_all(output, source, sent, received), output)

    def barrier(self) -> Operation:
        """Pass on, or fail."""
        return self._struck("barrier", self._inner.barrier(), None)

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Pass on, or fail."""
        return self._struck("send", self._inner.send(buffer, dest, tag), None)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Pass on, or fail."""
        return self._struck("recv", self._inner.recv(buffer, source, tag), buffer)

    @property
    def asks_senders(self) -> bool:
        """What the inner backend says."""
        return self._inner.asks_senders

    def recv_any(self, buffer: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Pass on, or fail."""
        return self._struck("recv", self._inner.recv_any(buffer, tag, found), buffer)

    def close(self) -> None:
        """Close the backend inside."""
        self._inner.close()
        super().close()

    def _struck(self, name: str, operation: Operation, result: torch.Tensor | None) -> Operation:
        fault = self._fault
        moment = fault.at if self._is_struck and fault.strikes(name, self._call, self.rank) else ""
        if moment == "before":
            yield from self._strike()
        if moment == "inside" and (waits := next(operation, None)) is not None:
            yield waits
            yield from self._strike()
        yield from operation
        if moment == "after":
            yield from self._strike()
        if moment and fault.kind == "wrong" and result is not None and result.numel():
            last_byte = as_bytes(result)[result.element_size() - 1 : result.element_size()]
            last_byte.bitwise_xor_(last_byte.new_tensor([0x40]))

    def _strike(self) -> Operation:
        """Do what the kind says; nothing for a wrong result."""
        kind = self._fault.kind
        if kind == "raise":
            raise BackendError(
                f"call {self._fault.calls} of {self.expression}",
                found="a fault put there on purpose",
                remedy="leave faulty(…) out",
            )
        if kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        end = time.monotonic() + (self._seconds if kind == "late" else 0)
        while kind == "hang" or time.monotonic() < end:
            yield "nothing, on purpose"
