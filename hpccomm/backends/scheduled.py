"""Combinators `ring(x)`, `tree(x)`, `direct(x)`, …: an algorithm's schedules over another backend's send and recv.

The carrier only moves bytes, so that every dtype that torch adds is reduced, whatever the carrier knows. A collective
that the algorithm does not serve runs by the default one of `hpccomm.algorithms`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from hpccomm.algorithms import serving
from hpccomm.backends.base import Backend, Operation
from hpccomm.backends.c10d import Op
from hpccomm.backends.carried import CarriedBackend
from hpccomm.backends.combine import REDUCTIONS
from hpccomm.backends.context import Context
from hpccomm.backends.execute import execute
from hpccomm.backends.registry import build
from hpccomm.backends.support import Support
from hpccomm.errors import OptionError
from hpccomm.expression import Expression
from hpccomm.schedule import blocks


class ScheduledBackend(CarriedBackend):
    """One algorithm over one carrier.

    16-bit and 8-bit floats are reduced in float32 and rounded once.

    Args:
        context: The group.
        inner: The carrier.
        algorithm: The algorithm's name.
    """

    def __init__(self, context: Context, inner: Expression, algorithm: str) -> None:
        super().__init__(context)
        self._carrier = build(inner, context.child("carrier"))
        self._algorithm = algorithm
        self.max_count = max(1, self._carrier.max_count // torch.float64.itemsize)
        self.support = Support(
            devices=self._carrier.support.devices,
            reductions=REDUCTIONS,
            rounding="float32 and float64 at every addition; narrower floats once",
            deadline="polled",
        )

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Run the algorithm's all-reduce."""
        algorithm, flat = serving(self._algorithm, "all_reduce"), buffer.view(-1)
        assert algorithm.all_reduce is not None
        source = flat.clone() if "all_reduce" in algorithm.separate_input else None
        steps = algorithm.all_reduce(self.rank, self.size, flat.numel())
        yield from execute(steps, self._carrier, flat, op, source=source)

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Run the algorithm's broadcast."""
        algorithm, flat = serving(self._algorithm, "broadcast"), buffer.view(-1)
        assert algorithm.broadcast is not None
        return execute(algorithm.broadcast(self.rank, self.size, flat.numel(), root), self._carrier, flat)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Run the algorithm's reduce-scatter on a copy of `source`."""
        algorithm, flat = serving(self._algorithm, "reduce_scatter"), source.clone().view(-1)
        assert algorithm.reduce_scatter is not None
        counts = counts if counts is not None else [output.numel()] * self.size
        yield from execute(algorithm.reduce_scatter(self.rank, self.size, counts), self._carrier, flat, op)
        output.view(-1).copy_(flat[slice(*blocks(counts)[self.rank])])

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Put the own block into place, then run the algorithm's all-gather."""
        algorithm, flat = serving(self._algorithm, "all_gather"), output.view(-1)
        assert algorithm.all_gather is not None
        counts = counts if counts is not None else [source.numel()] * self.size
        flat[slice(*blocks(counts)[self.rank])].copy_(source.view(-1))
        return execute(algorithm.all_gather(self.rank, self.size, counts), self._carrier, flat)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Run the algorithm's reduce."""
        algorithm, flat = serving(self._algorithm, "reduce"), buffer.view(-1)
        assert algorithm.reduce is not None
        return execute(algorithm.reduce(self.rank, self.size, flat.numel(), root), self._carrier, flat, op)

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Put the own block into place, then run the algorithm's gather."""
        algorithm, count = serving(self._algorithm, "gather"), source.numel()
        assert algorithm.gather is not None
        flat = source.new_empty(count * self.size) if output is None else output.view(-1)
        flat[self.rank * count : (self.rank + 1) * count].copy_(source.view(-1))
        return execute(algorithm.gather(self.rank, self.size, [count] * self.size, root), self._carrier, flat)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Run the algorithm's scatter on a copy of the root's tensor."""
        algorithm, count = serving(self._algorithm, "scatter"), output.numel()
        assert algorithm.scatter is not None
        flat = output.new_empty(count * self.size) if source is None else source.clone().view(-1)
        yield from execute(algorithm.scatter(self.rank, self.size, [count] * self.size, root), self._carrier, flat)
        output.view(-1).copy_(flat[self.rank * count : (self.rank + 1) * count])

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Run the algorithm's all-to-all."""
        algorithm = serving(self._algorithm, "all_to_all")
        assert algorithm.all_to_all is not None
        steps = algorithm.all_to_all(self.rank, self.size, sent, received)
        return execute(steps, self._carrier, output.view(-1), source=source.view(-1))


def builder(algorithm: str) -> Callable[[Context, Expression], Backend]:
    """Give the builder of the combinator that runs an algorithm."""

    def build_scheduled(context: Context, inner: Expression) -> Backend:
        return ScheduledBackend(context, inner, algorithm)

    return build_scheduled


def build_direct(context: Context, inner: Expression, *, shots: int = 1) -> Backend:
    """Build the direct all-to-all: in one shot, or in two (reduce-scatter, then all-gather)."""
    algorithm = {1: "direct", 2: "pairwise"}.get(shots)
    if algorithm is None:
        raise OptionError(
            f"build backend direct({inner}, shots={shots})", found=f"{shots!r}", remedy="give 1 or 2", everywhere=True
        )
    return ScheduledBackend(context, inner, algorithm)
