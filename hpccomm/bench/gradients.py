"""A model's gradients, averaged as training does it: alone, or while backward computes them.

The model is a stand-in of the real shapes: each parameter is the weight of a linear map, so backward multiplies two
matrices for its gradient, ``inputs.T @ errors``. All their rows but the first are zeros, which costs the same, so a
gradient is known without arithmetic and is whole numbers whose average is whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from hpccomm.bench import inputs
from hpccomm.bench.averaging import Part, model_of
from hpccomm.bench.budget import Budget
from hpccomm.bench.candidates import Candidate
from hpccomm.bench.case import Data
from hpccomm.bench.collectives import COLLECTIVES, IN
from hpccomm.bench.models import MODELS, Shape, elements
from hpccomm.bench.options import Options
from hpccomm.bench.rows import Row
from hpccomm.bench.series import Cases, Run, Series
from hpccomm.bench.tables import Table
from hpccomm.training import GradientBuckets

MODEL = "resnet50"
BATCH = 32
_MIB = 1 << 20


class GradientCase:
    """The gradients of a model on this rank; every backend averages those of the same parameters.

    Args:
        table: Dtype and number of ranks.
        shapes: Of the parameters.
        rank: This rank.
        bucket_bytes: A bucket takes gradients until it holds so many.
        batch: Rows of the matrices that backward multiplies.
        part: What is timed.

    Attributes:
        table: As given.
        integers: This rank's gradients and what must come out.
        random: None.
    """

    def __init__(
        self, table: Table, shapes: Sequence[Shape], *, rank: int, bucket_bytes: int, batch: int, part: Part
    ) -> None:
        self.table, self._part, self._bucket_mib = table, part, bucket_bytes / _MIB
        dtype: torch.dtype = getattr(torch, table.dtype)
        values = inputs.integers("avg", table.ranks, inputs.Range.of(dtype))
        expected = values[rank] if part is Part.BACKWARD else inputs.reduced("avg", values)
        self.integers = Data(values[rank], [expected])
        self.random: Data | None = None
        self._module = torch.nn.ParameterList(torch.zeros(shape, dtype=dtype) for shape in shapes)
        height, width = (max(sides) for sides in zip(*map(_matrix, shapes), strict=True))
        rows = 1 if part is Part.AVERAGING else batch
        self._inputs, self._errors = (torch.zeros(rows, side, dtype=dtype) for side in (height, width))
        self._inputs[0] = 1 + torch.arange(height) % 2
        self._buckets: dict[Any, GradientBuckets] = {}
        self._loss = torch.zeros(())

    def fill(self, data: Data) -> None:
        """Have everything ready for backward, or the gradients themselves, where only their averaging is timed."""
        inputs.fill(self._errors[0], data.source)
        self._loss = torch.zeros((), requires_grad=True)
        for parameter in self._module:
            parameter.grad = None
            height, width = _matrix(tuple(parameter.shape))
            self._loss = _Weight.apply(self._loss, parameter, self._inputs[:, :height], self._errors[:, :width])
        if self._part is Part.AVERAGING:
            self._backward(None)

    def run(self, group: Any) -> None:
        """Do the part that is timed; the first call on a group makes its buckets, too."""
        buckets = self._of(group) if self._part is not Part.BACKWARD else None
        if self._part is not Part.AVERAGING:
            self._backward(buckets)
        if buckets is not None:
            buckets.wait()

    def count_wrong(self, data: Data) -> int:
        """Count the elements of the gradients that are not what they must be."""
        row = torch.empty_like(self._errors[0])
        inputs.fill(row, data.blocks[0])
        return sum(_count_wrong(parameter, self._inputs[0], row) for parameter in self._module)

    def _of(self, group: Any) -> GradientBuckets:
        if group not in self._buckets:
            size = self._bucket_mib
            self._buckets[group] = GradientBuckets(self._module, group=group, bucket_mib=size, compare=False)
        return self._buckets[group]

    def _backward(self, buckets: GradientBuckets | None) -> None:
        """Compute the gradients; only these buckets, if any, begin their averages meanwhile."""
        with ExitStack() as others:
            for one in self._buckets.values():
                if one is not buckets:
                    others.enter_context(one.no_sync())
            self._loss.backward()  # type: ignore[no-untyped-call]


class _Weight(torch.autograd.Function):
    """One parameter on the way of a loss; backward comes to the last one first."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, weight: Tensor, inputs: Tensor, errors: Tensor) -> Tensor:
        ctx.save_for_backward(inputs, errors)
        ctx.shape = weight.shape
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, errors = ctx.saved_tensors
        return gradient, (inputs.T @ errors).view(ctx.shape), None, None


def _matrix(shape: Shape) -> tuple[int, int]:
    """Give a parameter's sides as a matrix; a vector is one row."""
    return (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, shape[0])


def _count_wrong(parameter: Tensor, rows: Tensor, row: Tensor) -> int:
    if parameter.grad is None:
        return parameter.numel()
    height, width = _matrix(tuple(parameter.shape))
    expected = rows[:height].unsqueeze(1) * row[:width]
    return int((parameter.grad.view(height, width) != expected).sum())


def shapes_of(options: Options) -> list[Shape]:
    """Give the shapes of the model's parameters; scaled ones have fewer rows, down to one, then fewer columns."""
    shapes = MODELS[options.model or MODEL]()
    return [_scaled(shape, options.scale) for shape in shapes] if options.scale > 1 else shapes


def _scaled(shape: Shape, scale: int) -> Shape:
    height, width = _matrix(shape)
    rows = max(1, height // scale)
    return rows, max(1, height * width // scale // rows)


def series(run: Run, built: Sequence[Candidate], budget_s: float, part: Part) -> Sequence[Row]:
    """Measure a part with each size of bucket; collective."""
    options, ranks = run.options, run.world.topology.world_size
    table, shapes = table_of(options, ranks, part), shapes_of(options)
    moves = elements(shapes) * int(getattr(torch, table.dtype).itemsize)

    def make(bucket_bytes: int) -> GradientCase:
        return case_of(run, part, bucket_bytes)

    note = f"{len(shapes)} gradients, {moves / 1e6:.4g} MB; size: a bucket takes gradients until it holds so many bytes"
    cases = Cases(options.buckets, make, range(ranks), moves_bytes=moves, notes=(note,))
    return Series(run, table, built, Budget(budget_s, options.iterations), cases).measure()


def case_of(run: Run, part: Part, bucket_bytes: int) -> GradientCase:
    """Make a case of the run's model."""
    options, topology = run.options, run.world.topology
    return GradientCase(
        table_of(options, topology.world_size, part),
        shapes_of(options),
        rank=topology.rank,
        bucket_bytes=bucket_bytes,
        batch=options.batch or BATCH,
        part=part,
    )


def table_of(options: Options, ranks: int, part: Part) -> Table:
    """Give the table of a part."""
    name = part.of(model_of(options.model or MODEL, options.scale))
    collective = replace(COLLECTIVES["all_reduce"], name=name, made_of="all_reduce", moves="gradients")
    return Table(collective, ranks, options.dtype, "avg", IN)
