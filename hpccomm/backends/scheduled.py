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
from hpccomm.backends.context import Context
from hpccomm.backends.execute import TAG, execute
from hpccomm.backends.registry import build
from hpccomm.backends.support import ARITHMETIC, BITWISE, SIGNED, Support
from hpccomm.errors import OptionError
from hpccomm.expression import Expression
from hpccomm.schedule import blocks

_INTEGERS = SIGNED | {torch.uint8}


class ScheduledBackend(Backend):
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
        self.max_count = self._carrier.max_count // torch.float64.itemsize
        self.support = Support(
            devices=self._carrier.support.devices,
            reductions={
                **dict.fromkeys((torch.float64, torch.float32), ARITHMETIC),
                **dict.fromkeys(_INTEGERS, ARITHMETIC | BITWISE),
            },
            rounding="float32 and float64 at every addition; narrower floats once",
            deadline="polled",
        )

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Run the algorithm's all-reduce."""
        algorithm, flat = serving(self._algorithm, "all_reduce"), buffer.view(-1)
        assert algorithm.all_reduce is not None
        source = flat.clone() if "all_reduce" in algorithm.separate_input else None
        steps = algorithm.all_reduce(self.rank, self.size, flat.numel())
        return execute(steps, self._carrier, flat, op, source=source)

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

    def barrier(self) -> Operation:
        """Use the carrier's barrier."""
        return self._carrier.barrier()

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Use the carrier's send."""
        return self._carrier.send(buffer, dest, _checked(tag))

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Use the carrier's recv."""
        return self._carrier.recv(buffer, source, _checked(tag))

    def close(self) -> None:
        """Close the carrier."""
        self._carrier.close()
        super().close()


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


def _checked(tag: int) -> int:
    if tag == TAG:
        raise OptionError(
            f"communicate with tag {tag}", found="schedules use this tag themselves", remedy="use another tag"
        )
    return tag
