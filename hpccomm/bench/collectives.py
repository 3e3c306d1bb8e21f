"""The table of collectives: how each is called, what it must give, and its busbw factor.

A new collective is one more entry of `COLLECTIVES`. Nothing is imported here: options are checked against the table
before torch is, so torch.distributed and tensors come in as arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Call = Callable[[Any, "Tensor", "Tensor", Any, Any], Any]
"""(torch.distributed, output, source, operator, group) -> anything; in place, source is output."""

Expected = Callable[[Sequence["Tensor"], "Tensor", int, int], "Sequence[Tensor]"]
"""(inputs of all ranks, their reduction, rank, elements a rank) -> the output, as equal blocks.

Inputs and blocks are patterns: what a tensor holds over and over from its start.
"""


@dataclass(frozen=True)
class Collective:
    """One collective; the size of an operation is that of its larger tensor, which is the same on all ranks.

    Attributes:
        name: As torch and NCCL spell it.
        call: Starts it and waits for its end.
        expected: What must stand in the output.
        formula: The busbw factor as text; n is the number of ranks.
        factor: The busbw factor for n ranks.
        reduces: Whether an operator is applied.
        sends_share: Whether the input is one n-th of the size.
        keeps_share: Whether the output is one n-th of the size.
    """

    name: str
    call: Call
    expected: Expected
    formula: str
    factor: Callable[[int], float]
    reduces: bool = False
    sends_share: bool = False
    keeps_share: bool = False

    @property
    def in_place(self) -> bool:
        """Whether the output overwrites the input."""
        return not (self.sends_share or self.keeps_share)

    def bus_factor(self, ranks: int) -> float | None:
        """Give bytes on the bus over bytes of the operation; None for one rank, which has no bus."""
        return self.factor(ranks) if ranks > 1 else None


def _all_gather(dist: Any) -> Any:
    """Give the function by its name from torch 2.14 on, or by the one before, which warns there."""
    return getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _reduce_scatter(dist: Any) -> Any:
    return getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            "all_reduce",
            call=lambda dist, output, source, op, group: dist.all_reduce(output, op, group),
            expected=lambda inputs, reduced, rank, share: [reduced],
            formula="2(n-1)/n",
            factor=lambda n: 2 * (n - 1) / n,
            reduces=True,
        ),
        Collective(
            "broadcast",
            call=lambda dist, output, source, op, group: dist.broadcast(output, 0, group),
            expected=lambda inputs, reduced, rank, share: [inputs[0]],
            formula="1",
            factor=lambda n: 1.0,
        ),
        Collective(
            "all_gather",
            call=lambda dist, output, source, op, group: _all_gather(dist)(output, source, group),
            expected=lambda inputs, reduced, rank, share: inputs,
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            sends_share=True,
        ),
        Collective(
            "reduce_scatter",
            call=lambda dist, output, source, op, group: _reduce_scatter(dist)(output, source, op, group),
            expected=lambda inputs, reduced, rank, share: [reduced.roll(-rank * share)],
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            reduces=True,
            keeps_share=True,
        ),
    )
}
