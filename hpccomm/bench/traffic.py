"""What the ranks of a transformer send in a step of data, tensor and pipeline parallel training; pure.

As in Megatron-LM (Shoeybi et al. 2019, section 3; Narayanan et al. 2021, section 3.2): a layer's weights are cut over
the tensor ranks, which sum activations twice in forward and twice in backward; a stage gives the next one its
activations, and gets their gradients back; data parallel ranks average the gradients of their layers once a step.
Embeddings are left out. Ranks are numbered tensor first, then data, then pipeline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hpccomm.bench.models import Transformer, elements
from hpccomm.errors import OptionError
from hpccomm.topology.grouping import Groups, count

STEP = "of its operations one after the other, none hidden under computation"

Medians = Mapping[str, float]
"""Microseconds of one operation, by its kind."""

_MOST_TENSOR_RANKS = 8


@dataclass(frozen=True)
class Parallel:
    """How many ranks share a layer, its batch, and the layers."""

    tensor: int
    data: int
    pipeline: int

    def __str__(self) -> str:
        return f"tp {self.tensor} x dp {self.data} x pp {self.pipeline}"

    def groups(self, kind: str) -> Groups:
        """Give the ranks of every group of a kind: ``tensor``, ``data`` or ``pipeline``."""
        tensor, data, pipeline = map(range, (self.tensor, self.data, self.pipeline))

        def rank(t: int, d: int, p: int) -> int:
            return t + self.tensor * (d + self.data * p)

        if kind == "tensor":
            return tuple(tuple(rank(t, d, p) for t in tensor) for p in pipeline for d in data)
        if kind == "data":
            return tuple(tuple(rank(t, d, p) for d in data) for p in pipeline for t in tensor)
        return tuple(tuple(rank(t, d, p) for p in pipeline) for d in data for t in tensor)


@dataclass(frozen=True)
class Traffic:
    """One kind of operation in a step.

    Attributes:
        kind: Of its groups, see `Parallel.groups`.
        collective: What its ranks call.
        op: Its operator, or None.
        elements: Of one operation.
        layer: Operations of a layer in a step.
        step: Operations of a rank in a step.
        what: What is sent, in words.
    """

    kind: str
    collective: str
    op: str | None
    elements: int
    layer: int
    step: int
    what: str


@dataclass(frozen=True)
class Timed(Traffic):
    """The same with what it takes.

    Attributes:
        size_bytes: Of one operation.
        time_us: Of one operation, in microseconds.
    """

    size_bytes: int
    time_us: float


def parallel(node_sizes: Sequence[int], *, tp: int | None, pp: int | None, dp: int | None = None) -> Parallel:
    """Share ranks out.

    Args:
        node_sizes: Ranks of each node.
        tp: Ranks that share a layer; None for what is left, without `dp` for as many as fit into every node, up to 8.
        pp: Stages; None for one.
        dp: Data parallel ranks; None for what is left.

    Raises:
        OptionError: They do not make up the ranks.
    """
    ranks, most = sum(node_sizes), math.gcd(*node_sizes)
    pipeline = pp or 1
    shares = [one for one in range(1, _MOST_TENSOR_RANKS + 1) if most % one == 0 and ranks % (one * pipeline) == 0]
    tensor = tp or (max(1, ranks // (dp * pipeline)) if dp else max(shares, default=1))
    data = dp or max(1, ranks // (tensor * pipeline))
    if ranks == 1 or tensor * pipeline * data != ranks:
        given = f"--tp {tensor} --pp {pipeline}" + (f" --dp {dp}" if dp else "")
        product = f"{tensor} x {pipeline}" + (f" x {dp} is not {ranks}" if dp else f" does not divide {ranks}")
        raise OptionError(
            f"share {count(ranks, 'rank')} out with {given}",
            found=product if ranks > 1 else "one rank sends nothing",
            remedy="start a multiple of --tp x --pp ranks, at least 2, and no others than --tp x --pp x --dp",
            everywhere=True,
        )
    return Parallel(tensor, data, pipeline)


def traffic(model: Transformer, ways: Parallel, *, batch: int, scale: int) -> list[Traffic]:
    """Give what a rank of the largest stage sends in a step; kinds with one rank send nothing.

    Args:
        model: The transformer.
        ways: How its ranks share it.
        batch: Micro-batches of one sequence in a step, of one data parallel rank.
        scale: Takes one scale-th of every operation's elements.
    """
    layers = -(-model.layers // ways.pipeline)
    activations = max(1, model.context * model.hidden // scale)
    gradients = max(1, elements(model.layer) // ways.tensor // scale)
    sums = 4 * batch
    found = (
        (ways.tensor, Traffic("tensor", "all_reduce", "sum", activations, sums, sums * layers, "activations")),
        (ways.data, Traffic("data", "all_reduce", "avg", gradients, 1, layers, "a layer's gradients")),
        (ways.pipeline, Traffic("pipeline", "sendrecv", None, activations, 0, 2 * batch, "what stages hand on")),
    )
    return [one for ranks, one in found if ranks > 1]


def layer_us(kinds: Sequence[Traffic], times_us: Medians) -> float:
    """Give the time of one layer's operations in a step, in microseconds."""
    return sum(kind.layer * times_us[kind.kind] for kind in kinds)


def step_us(kinds: Sequence[Traffic], times_us: Medians) -> float:
    """Give the time of all operations of a rank in a step, in microseconds."""
    return sum(kind.step * times_us[kind.kind] for kind in kinds)
