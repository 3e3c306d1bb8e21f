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
"""(torch.distributed, output, source, operator, group) -> anything; in place, source shares the output's memory."""

Expected = Callable[[Sequence["Tensor"], "Tensor", int, int], "Sequence[Tensor]"]
"""(inputs of all ranks, their reduction, rank, elements a rank) -> the output, as equal blocks; none if unchecked.

Inputs and blocks are patterns: what a tensor holds over and over from its start.
"""

IN, OUT = "in", "out"


@dataclass(frozen=True)
class Collective:
    """One collective; the size of an operation is that of its larger tensor, which is the same on all ranks.

    Attributes:
        name: As torch and NCCL spell it.
        call: Starts it and waits for its end.
        expected: What must stand in the output.
        places: `IN` where the tensors may share memory, `OUT` where they may not; the usual one first. A collective
            without data has none.
        formula: The busbw factor as text; n is the number of ranks.
        factor: The busbw factor for n ranks; None where there is no data.
        reduces: Whether an operator is applied.
        sends_share: Whether the input is one n-th of the size.
        keeps_share: Whether the output is one n-th of the size.
        copies: Whether out of place is a copy into the output, then the call in place: torch has no other call.
        exchanges: Whether both tensors are made of one block for each rank.
        by_levels: Whether a hierarchy runs it level by level, so that the bytes between nodes are known.
        to_next: Whether each rank only sends to the next one.
        carried: Whether a backend made of schedules leaves it to its carrier.
        fewest_ranks: How many ranks it needs.
        made_of: Name of the collective that it is many calls of; empty where it is one call.
        moves: What its rates count.
    """

    name: str
    call: Call
    expected: Expected
    places: tuple[str, ...] = ()
    formula: str = ""
    factor: Callable[[int], float] | None = None
    reduces: bool = False
    sends_share: bool = False
    keeps_share: bool = False
    copies: bool = False
    exchanges: bool = False
    by_levels: bool = True
    to_next: bool = False
    carried: bool = False
    fewest_ranks: int = 1
    made_of: str = ""
    moves: str = "size"

    @property
    def has_data(self) -> bool:
        """Whether it moves anything; otherwise all it does is to wait for all ranks."""
        return bool(self.places)

    @property
    def has_shares(self) -> bool:
        """Whether the size is cut into one part for each rank."""
        return self.sends_share or self.keeps_share or self.exchanges

    def bus_factor(self, ranks: int) -> float | None:
        """Give bytes on the bus over bytes of the operation; None for one rank, which has no bus, or without data."""
        return self.factor(ranks) if self.factor and ranks > 1 else None


def _all_gather(dist: Any) -> Any:
    """Give the function by its name from torch 2.14 on, or by the one before, which warns there."""
    return getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


def _reduce_scatter(dist: Any) -> Any:
    return getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def _filled(output: Tensor, source: Tensor) -> Tensor:
    """Give the output with the input in it, copied there unless it is the same tensor."""
    return output if output is source else output.copy_(source)


def _broadcast(dist: Any, output: Tensor, source: Tensor, group: Any) -> None:
    if output is not source and dist.get_rank(group) == 0:
        output.copy_(source)
    dist.broadcast(output, 0, group)


def _gather(dist: Any, output: Tensor, source: Tensor, group: Any) -> None:
    ranks = dist.get_world_size(group)
    dist.gather(source, list(output.chunk(ranks)) if dist.get_rank(group) == 0 else None, 0, group)


def _scatter(dist: Any, output: Tensor, source: Tensor, group: Any) -> None:
    ranks = dist.get_world_size(group)
    dist.scatter(output, list(source.chunk(ranks)) if dist.get_rank(group) == 0 else None, 0, group)


def _sendrecv(dist: Any, output: Tensor, source: Tensor, group: Any) -> None:
    """Send to the next rank of the ring and receive from the one before, both at once."""
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    received = dist.irecv(output, group=group, group_src=(rank - 1) % ranks)
    sent = dist.isend(source, group=group, group_dst=(rank + 1) % ranks)
    received.wait()
    sent.wait()


COLLECTIVES = {
    collective.name: collective
    for collective in (
        Collective(
            "all_reduce",
            call=lambda dist, output, source, op, group: dist.all_reduce(_filled(output, source), op, group),
            expected=lambda inputs, reduced, rank, share: [reduced],
            places=(IN, OUT),
            formula="2(n-1)/n",
            factor=lambda n: 2 * (n - 1) / n,
            reduces=True,
            copies=True,
        ),
        Collective(
            "broadcast",
            call=lambda dist, output, source, op, group: _broadcast(dist, output, source, group),
            expected=lambda inputs, reduced, rank, share: [inputs[0]],
            places=(IN, OUT),
            formula="1",
            factor=lambda n: 1.0,
            copies=True,
        ),
        Collective(
            "all_gather",
            call=lambda dist, output, source, op, group: _all_gather(dist)(output, source, group),
            expected=lambda inputs, reduced, rank, share: inputs,
            places=(OUT, IN),
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            sends_share=True,
        ),
        Collective(
            "reduce_scatter",
            call=lambda dist, output, source, op, group: _reduce_scatter(dist)(output, source, op, group),
            expected=lambda inputs, reduced, rank, share: [reduced.roll(-rank * share)],
            places=(OUT, IN),
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            reduces=True,
            keeps_share=True,
        ),
        Collective(
            "reduce",
            call=lambda dist, output, source, op, group: dist.reduce(_filled(output, source), 0, op, group),
            expected=lambda inputs, reduced, rank, share: [reduced] if rank == 0 else [],
            places=(IN, OUT),
            formula="1",
            factor=lambda n: 1.0,
            reduces=True,
            copies=True,
            by_levels=False,
        ),
        Collective(
            "gather",
            call=lambda dist, output, source, op, group: _gather(dist, output, source, group),
            expected=lambda inputs, reduced, rank, share: inputs if rank == 0 else [],
            places=(OUT,),
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            sends_share=True,
            by_levels=False,
        ),
        Collective(
            "scatter",
            call=lambda dist, output, source, op, group: _scatter(dist, output, source, group),
            expected=lambda inputs, reduced, rank, share: [inputs[0].roll(-rank * share)],
            places=(OUT,),
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            keeps_share=True,
            by_levels=False,
        ),
        Collective(
            "all_to_all",
            call=lambda dist, output, source, op, group: dist.all_to_all_single(output, source, group=group),
            expected=lambda inputs, reduced, rank, share: [one.roll(-rank * share) for one in inputs],
            places=(OUT,),
            formula="(n-1)/n",
            factor=lambda n: (n - 1) / n,
            exchanges=True,
            by_levels=False,
        ),
        Collective(
            "sendrecv",
            call=lambda dist, output, source, op, group: _sendrecv(dist, output, source, group),
            expected=lambda inputs, reduced, rank, share: [inputs[rank - 1]],
            places=(OUT,),
            formula="1",
            factor=lambda n: 1.0,
            to_next=True,
            carried=True,
            fewest_ranks=2,
        ),
        Collective(
            "barrier",
            call=lambda dist, output, source, op, group: dist.barrier(group),
            expected=lambda inputs, reduced, rank, share: [],
            carried=True,
        ),
    )
}
