"""Leaf `shm`: tensors go through windows of memory that the ranks of a host share, piece by piece.

An all-reduce of S bytes over n ranks: the tensor is cut into a share of each rank. In every round a rank puts a piece
of all others' shares into its window, adds to the same piece of its own share what the others put in for it, puts the
sum in too, and copies the others' sums. Each rank copies 2(n-1)/n * S bytes in and out, in pieces such that what is put
in is still in the caches when it is read. Everything is polled, and nobody writes into another's tensors. Below
`crossover` bytes, and for messages between two ranks, the MPI library (or Gloo) is faster and is used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from ctypes import memmove
from dataclasses import replace

import torch

from hpccomm.backends.base import Backend, Operation, check_deadline
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.carried import CarriedBackend
from hpccomm.backends.combine import COMBINE, REDUCTIONS
from hpccomm.backends.context import Context
from hpccomm.backends.registry import build
from hpccomm.backends.support import HALVES, Support
from hpccomm.backends.windows import Block, Call, Cut, Stage, Windows, blocks_of, in_rounds
from hpccomm.errors import BackendError
from hpccomm.expression import Expression, parse

_SUMMED = frozenset({ReduceOp.SUM, ReduceOp.PRODUCT})
_CROSSOVER = 4 * 2**20


class ShmBackend(CarriedBackend):
    """Ranks of one host that share memory.

    16-bit floats are reduced in float32 and rounded once; 8-bit floats likewise.

    Args:
        context: The group.
        crossover: Bytes of a tensor from which on it goes through windows.
        deadline: How MPI holds its own below the crossover, as `mpi4py` takes it.

    Raises:
        BackendError: The ranks are on several hosts, or share no memory; raised on all ranks.
    """

    def __init__(self, context: Context, *, crossover: int = _CROSSOVER, deadline: str = "arrival") -> None:
        super().__init__(context)
        check_deadline("shm", deadline)
        if not context.topology.one_host:
            raise BackendError(
                "build backend shm",
                found="the ranks are on several hosts",
                remedy="use it inside hosts: hierarchical(shm, gloo)",
                everywhere=True,
            )
        self._crossover = crossover
        self._windows = Windows(context.exchange)
        mpi = Expression("mpi4py", options=(("deadline", deadline),))
        carrier = parse("gloo") if context.communicator is None else mpi
        self._carrier: Backend = build(carrier, context.child("carrier"))
        self.max_count = self._carrier.max_count
        self.support = _support(self._carrier.support)
        self._others = [(self.rank + shift) % self.size for shift in range(1, self.size)]

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Reduce the own share and copy the others'."""
        if self._is_small(buffer):
            return self._widened(buffer, lambda wide: self._carrier.all_reduce(wide, op))
        return self._reduced_by_owners(buffer.view(-1), op, "all_reduce", self._others)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Reduce the own share; the root copies the others'."""
        if self._is_small(buffer):
            return self._widened(buffer, lambda wide: self._carrier.reduce(wide, op, root))
        collected = self._others if self.rank == root else []
        return self._reduced_by_owners(buffer.view(-1), op, f"reduce {root}", collected)

    def _reduced_by_owners(self, flat: torch.Tensor, op: Op, what: str, collected: Sequence[int]) -> Operation:
        share, rest = divmod(flat.numel(), self.size)
        counts = [share + (rank < rest) for rank in range(self.size)]
        blocks, cut = blocks_of(flat, counts), self._windows.cut(share + (rest > 0), flat)
        start = self.rank * share + min(self.rank, rest)
        own = flat[start : start + counts[self.rank]]
        call = self._windows.call(f"{what} {op.value} {flat.dtype} {flat.numel()}", cut.rounds)

        def reduce(number: int) -> Operation:
            yield from call.until_put(number)
            self._reduce(call, number, cut.of(own, number), op)
            call.give(number, self.size, *cut.piece(blocks[self.rank], number))
            call.reduced(number)

        def collect(number: int) -> Operation:
            yield from call.until_reduced(number)
            for other in collected:
                call.take(other, number, self.size, *cut.piece(blocks[other], number))
            call.read(number)

        yield from in_rounds(cut.rounds, self._put(call, blocks, cut), reduce, collect)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce the own block."""
        if not self._is_small(source):
            return self._reduce_scatter(output.view(-1), source.view(-1), op, counts or [output.numel()] * self.size)
        if source.dtype in HALVES:
            return self._widened(output, lambda wide: self._carrier.reduce_scatter(wide, source.float(), op, counts))
        return self._carrier.reduce_scatter(output, source, op, counts)

    def _reduce_scatter(self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int]) -> Operation:
        cut = self._windows.cut(max(counts), source)
        call = self._windows.call(f"reduce_scatter {op.value} {source.dtype} {counts}", cut.rounds)
        output.copy_(torch.split(source, list(counts))[self.rank])

        def reduce(number: int) -> Operation:
            yield from call.until_put(number)
            self._reduce(call, number, cut.of(output, number), op)
            call.read(number)

        yield from in_rounds(cut.rounds, self._put(call, blocks_of(source, counts), cut), reduce)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Copy every rank's block into place."""
        if self._is_small(output):
            return self._carrier.all_gather(output, source, counts)
        return self._gather(output, source, counts or [source.numel()] * self.size, "all_gather")

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Have the root copy every rank's block into place."""
        if self._is_small(source, self.size):
            return self._carrier.gather(output, source, root)
        return self._gather(output, source, [source.numel()] * self.size, f"gather {root}")

    def _gather(self, output: torch.Tensor | None, source: torch.Tensor, counts: Sequence[int], what: str) -> Operation:
        cut, (own,) = self._windows.cut(max(counts), source), blocks_of(source, [source.numel()])
        call = self._windows.call(f"{what} {source.dtype} {counts}", cut.rounds)
        blocks = [] if output is None else blocks_of(output, counts)
        if blocks and blocks[self.rank] != own:
            memmove(blocks[self.rank][0], *own)

        def put(number: int) -> Operation:
            yield from call.until_free(number)
            call.give(number, 0, *cut.piece(own, number))
            call.put(number)

        def collect(number: int) -> Operation:
            yield from call.until_put(number)
            for other in self._others if blocks else ():
                call.take(other, number, 0, *cut.piece(blocks[other], number))
            call.read(number)

        yield from in_rounds(cut.rounds, put, collect)

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Copy the root's tensor."""
        if self._is_small(buffer):
            return self._carrier.broadcast(buffer, root)
        (whole,) = blocks_of(buffer, [buffer.numel()])
        return self._from_root(buffer, [whole] if self.rank == root else [], f"broadcast {root}", root, row=0)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Copy the own block of the root's tensor."""
        if self._is_small(output, self.size):
            return self._carrier.scatter(output, source, root)
        return self._scatter(output, source, root)

    def _scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        blocks = [] if source is None else blocks_of(source, [output.numel()] * self.size)
        if source is not None:
            output.view(-1).copy_(torch.split(source.view(-1), output.numel())[root])
        yield from self._from_root(output, blocks, f"scatter {root}", root, row=self.rank)

    def _from_root(self, output: torch.Tensor, blocks: Sequence[Block], what: str, root: int, *, row: int) -> Operation:
        """Copy a row from the root, which puts in its blocks, a row each."""
        cut, (own,) = self._windows.cut(output.numel(), output), blocks_of(output, [output.numel()])
        call = self._windows.call(f"{what} {output.dtype} {output.numel()}", cut.rounds)

        def put(number: int) -> Operation:
            if blocks:
                yield from call.until_free(number)
            for one, block in enumerate(blocks):
                call.give(number, one, *cut.piece(block, number))
            call.put(number)

        def collect(number: int) -> Operation:
            yield from call.until_put(number, root)
            if not blocks:
                call.take(root, number, row, *cut.piece(own, number))
            call.read(number)

        yield from in_rounds(cut.rounds, put, collect)

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Tell all ranks how many elements go where, which only senders know, then copy the own block of every rank."""
        given = torch.tensor(sent, dtype=torch.int64, device="cpu")
        asked = given.new_empty(self.size * self.size)
        yield from self._gather(asked, given, [self.size] * self.size, f"all_to_all {source.dtype}")
        for rank, count in enumerate(asked[self.rank :: self.size].tolist()):
            if count != received[rank]:
                raise _other_size(rank, count, received[rank])
        cut, blocks, places = (
            self._windows.cut(int(asked.max()), source),
            blocks_of(source, sent),
            blocks_of(output, received),
        )
        call = self._windows.call("all_to_all", cut.rounds)
        memmove(places[self.rank][0], *blocks[self.rank])

        def collect(number: int) -> Operation:
            yield from call.until_put(number)
            for other in self._others:
                call.take(other, number, self.rank, *cut.piece(places[other], number))
            call.read(number)

        yield from in_rounds(cut.rounds, self._put(call, blocks, cut), collect)

    def _put(self, call: Call, blocks: Sequence[Block], cut: Cut) -> Stage:
        """Give the stage that puts in a piece of each other rank's block, in that rank's row."""

        def put(number: int) -> Operation:
            yield from call.until_free(number)
            for other in self._others:
                call.give(number, other, *cut.piece(blocks[other], number))
            call.put(number)

        return put

    def _reduce(self, call: Call, number: int, piece: torch.Tensor, op: Op) -> None:
        """Reduce what the other ranks have put in for this one into its piece."""
        total = piece.float() if piece.dtype in HALVES else piece
        for other in self._others:
            COMBINE[op](total, call.given(other, number, piece))
        if total is not piece:
            piece.copy_(total)

    def _is_small(self, tensor: torch.Tensor, times: int = 1) -> bool:
        return tensor.numel() * tensor.element_size() * times < self._crossover

    def _widened(self, buffer: torch.Tensor, run: Callable[[torch.Tensor], Operation]) -> Operation:
        """Run a small reduction, in float32 where MPI and Gloo would add 16-bit floats wrongly."""
        if buffer.dtype not in HALVES:
            return run(buffer)
        return self._in_float32(buffer, run)

    def _in_float32(self, buffer: torch.Tensor, run: Callable[[torch.Tensor], Operation]) -> Operation:
        wide = buffer.float()
        yield from run(wide)
        buffer.copy_(wide)


def _support(carrier: Support) -> Support:
    """Give what both ways reduce, and 16-bit floats, which this leaf widens itself."""
    both = carrier.joined(Support(frozenset({"cpu"}), REDUCTIONS, carrier.rounding, "polled"))
    return replace(
        both,
        reductions={**both.reductions, **dict.fromkeys(HALVES, _SUMMED)},
        deadline=f"polled; below the crossover: {carrier.deadline}",
    )


def _other_size(other: int, sent: int, wanted: int) -> BackendError:
    return BackendError(
        f"receive {wanted} elements of rank {other}",
        found=f"it sends {sent}",
        remedy="give all ranks of all_to_all split sizes that fit together",
    )
