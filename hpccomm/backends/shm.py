"""Leaf `shm`: ranks of one host read each other's tensors where they lie.

An all-reduce of S bytes over n ranks: every rank reduces its n-th of the tensor, piece by piece, reading the others'
pieces into a scratch piece that stays in its cache, and collects the other n-ths as their owners finish pieces: each
rank copies 2(n-1)/n * S bytes, and nothing is copied twice. Ranks only ever write into their own memory, so that one
that was stopped, and goes on long after the others gave up, does no harm. Everything is polled. Where reading
is forbidden, ranks show copies in windows that all map. Below `crossover` bytes, and for what is sent to single ranks,
the MPI library's own shared memory is faster and is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import torch

from hpccomm.backends.base import MAX_COUNT, Operation, offsets
from hpccomm.backends.board import Board
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.carried import CarriedBackend
from hpccomm.backends.combine import COMBINE, REDUCTIONS
from hpccomm.backends.context import Context
from hpccomm.backends.host_memory import find
from hpccomm.backends.registry import build
from hpccomm.backends.support import HALVES, Support
from hpccomm.errors import BackendError
from hpccomm.expression import parse

_SUMMED = frozenset({ReduceOp.SUM, ReduceOp.PRODUCT})
_WIDEST = 8  # bytes of an element
_PIECE_BYTES = 256 * 1024  # two of them fit into the cache of a core
_CROSSOVER = 256 * 1024


Pieces = list[tuple[int, torch.Tensor]]


class ShmBackend(CarriedBackend):
    """Ranks of one host that read each other's memory.

    16-bit floats are reduced in float32 and rounded once; 8-bit floats likewise.

    Args:
        context: The group.
        crossover: Bytes of a tensor from which on it goes this way; below, by MPI or Gloo.

    Raises:
        BackendError: The ranks are on several hosts, or share no memory; raised on all ranks.
    """

    def __init__(self, context: Context, *, crossover: int = _CROSSOVER) -> None:
        super().__init__(context)
        self._crossover = crossover
        self._memory, copied = find(context)
        self.notes = [copied] if copied else []
        self._board = Board(context.exchange)
        small = "gloo" if context.communicator is None else "mpi4py"
        self._carrier = build(parse(small), context.child("small"))
        self.max_count = min(self._carrier.max_count, (self._memory.most_bytes or MAX_COUNT) // _WIDEST)
        self.support = _support(self._carrier.support)
        self._others = [(self.rank + shift) % self.size for shift in range(1, self.size)]
        self._scratch = torch.empty(_PIECE_BYTES, dtype=torch.uint8)

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Reduce the own n-th and collect the others', a piece at a time."""
        if self._is_small(buffer):
            return self._widened(buffer, lambda wide: self._carrier.all_reduce(wide, op))
        return self._reduced_by_owners(buffer.view(-1), op, collects=True, what=f"all_reduce {op}")

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Reduce the own n-th; the root collects the others'."""
        if self._is_small(buffer):
            return self._widened(buffer, lambda wide: self._carrier.reduce(wide, op, root))
        return self._reduced_by_owners(
            buffer.view(-1), op, collects=self.rank == root, what=f"reduce {op} {root} {buffer.numel()}"
        )

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce the own block, reading it from all ranks."""
        if self._is_small(source):
            if source.dtype not in HALVES:
                return self._carrier.reduce_scatter(output, source, op, counts)
            return self._widened(output, lambda wide: self._carrier.reduce_scatter(wide, source.float(), op, counts))
        return self._reduce_scatter(output.view(-1), source.view(-1), op, counts)

    def _reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None
    ) -> Operation:
        start = offsets(counts if counts is not None else [output.numel()] * self.size)[self.rank]
        with self._meeting():
            yield from self._arrive(f"reduce_scatter {op} {counts} {source.numel()}", self._memory.show(source))
            output.copy_(source[start : start + output.numel()])
            for at, piece in _pieces(output, 0, output.numel()):
                self._reduce(piece, start + at, op)
            yield from self._board.leave()

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Read every rank's block into place."""
        if self._is_small(output):
            return self._carrier.all_gather(output, source, counts)
        return self._gather(output.view(-1), source.view(-1), counts, f"all_gather {counts or source.numel()}")

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Have the root read every rank's block into place."""
        if source.numel() * source.element_size() * self.size < self._crossover:
            return self._carrier.gather(output, source, root)
        return self._gather(
            None if output is None else output.view(-1), source.view(-1), None, f"gather {root} {source.numel()}"
        )

    def _gather(
        self, output: torch.Tensor | None, source: torch.Tensor, counts: Sequence[int] | None, what: str
    ) -> Operation:
        starts = offsets(counts if counts is not None else [source.numel()] * self.size)
        with self._meeting():
            yield from self._arrive(what, self._memory.show(source))
            if output is not None:
                mine = output[starts[self.rank] : starts[self.rank + 1]]
                if mine.data_ptr() != source.data_ptr():
                    mine.copy_(source)
                for other in self._others:
                    self._read(other, 0, output[starts[other] : starts[other + 1]])
            yield from self._board.leave()

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Read the root's tensor."""
        if self._is_small(buffer):
            return self._carrier.broadcast(buffer, root)
        return self._read_of_root(buffer.view(-1), buffer if self.rank == root else None, root, 0, "broadcast")

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Read the own block of the root's tensor."""
        if self._memory.most_bytes or output.numel() * output.element_size() * self.size < self._crossover:
            return self._carrier.scatter(output, source, root)
        return self._read_of_root(output.view(-1), source, root, self.rank * output.numel(), "scatter")

    def _read_of_root(
        self, output: torch.Tensor, source: torch.Tensor | None, root: int, start: int, what: str
    ) -> Operation:
        with self._meeting():
            shown = output if source is None else self._memory.show(source)
            yield from self._arrive(f"{what} {root} {output.numel()}", shown)
            if self.rank != root:
                self._read(root, start, output)
            elif source is not None and source.data_ptr() != output.data_ptr():
                output.copy_(source.view(-1)[start : start + output.numel()])
            yield from self._board.leave()

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Read the own block of every rank; what all send may be more than windows hold."""
        if self._memory.most_bytes:
            return self._carrier.all_to_all(output, source, sent, received)
        return self._all_to_all(output.view(-1), source.view(-1), sent, received)

    def _all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Ranks show where each other's blocks stand, which only their senders know."""
        places, starts = offsets(received), offsets(sent)
        with self._meeting():
            shown = self._memory.show(source)
            yield from self._arrive("all_to_all", shown, [*starts[:-1], *sent])
            for other in (self.rank, *self._others):
                shares = self._board.shares(other)
                start, count = shares[self.rank], shares[self.size + self.rank]
                into = output[places[other] : places[other + 1]]
                if count != into.numel():
                    raise _other_size(other, count, into.numel())
                if other == self.rank:
                    into.copy_(source[start : start + count])
                else:
                    self._read(other, start, into)
            yield from self._board.leave()

    def _reduced_by_owners(self, buffer: torch.Tensor, op: Op, *, collects: bool, what: str) -> Operation:
        """Reduce own pieces in place, and collect those that their owners have done."""
        share, rest = divmod(buffer.numel(), self.size)
        starts = offsets([share + (rank < rest) for rank in range(self.size)])
        with self._meeting():
            flat = self._memory.show(buffer)
            yield from self._arrive(f"{what} {flat.numel()}", flat)
            blocks = [_pieces(flat, *ends) for ends in pairwise(starts)]
            wanted = {other: len(blocks[other]) for other in self._others if collects}
            taken = dict.fromkeys(wanted, 0)
            for number, (start, piece) in enumerate(blocks[self.rank], 1):
                self._reduce(piece, start, op)
                self._board.count(number)
                self._collect(blocks, taken)
            while taken != wanted:
                if not self._collect(blocks, taken):
                    yield "the other ranks' shares"
            yield from self._board.leave()
            if flat is not buffer:
                buffer.copy_(flat)

    def _collect(self, blocks: Sequence[Pieces], taken: dict[int, int]) -> bool:
        """Read the pieces that their owners have done meanwhile, and tell whether there were any."""
        found = False
        for other, count in taken.items():
            done = self._board.done(other)
            for start, piece in blocks[other][count:done]:
                self._read(other, start, piece)
            found |= done > count
            taken[other] = done
        return found

    def _reduce(self, piece: torch.Tensor, start: int, op: Op) -> None:
        """Reduce the others' elements from `start` on into a piece of this rank's."""
        scratch = self._scratch[: piece.numel() * piece.element_size()].view(piece.dtype)
        total = piece.float() if piece.dtype in HALVES else piece
        for other in self._others:
            self._read(other, start, scratch)
            COMBINE[op](total, scratch)
        if total is not piece:
            piece.copy_(total)

    def _read(self, other: int, start: int, into: torch.Tensor) -> None:
        """Copy another rank's elements from `start` on."""
        self._memory.read(other, self._board.address(other) + start * into.element_size(), into)

    @contextmanager
    def _meeting(self) -> Generator[None, None, None]:
        try:
            yield
        except BaseException:  # given up too
            self._board.give_up()
            raise

    def _arrive(self, what: str, shown: torch.Tensor, shares: Sequence[int] = ()) -> Operation:
        word = zlib.crc32(f"{what} {shown.dtype}".encode())
        return self._board.arrive(word, self._memory.where(shown), shares)

    def _is_small(self, tensor: torch.Tensor) -> bool:
        return tensor.numel() * tensor.element_size() < self._crossover

    def _widened(self, buffer: torch.Tensor, run: Callable[[torch.Tensor], Operation]) -> Operation:
        """Run a small reduction, in float32 where MPI and Gloo would add 16-bit floats wrongly."""
        if buffer.dtype not in HALVES:
            return run(buffer)
        return self._in_float32(buffer, run)

    def _in_float32(self, buffer: torch.Tensor, run: Callable[[torch.Tensor], Operation]) -> Operation:
        wide = buffer.float()
        yield from run(wide)
        buffer.copy_(wide)


def _support(small: Support) -> Support:
    """Give what both ways reduce, and 16-bit floats, which this leaf widens itself."""
    both = small.joined(Support(small.devices, REDUCTIONS, small.rounding, "polled"))
    return replace(
        both,
        reductions={**both.reductions, **dict.fromkeys(HALVES, _SUMMED)},
        deadline=f"polled; below the crossover: {small.deadline}",
    )


def _pieces(flat: torch.Tensor, start: int, end: int) -> Pieces:
    """Cut a part of a tensor into pieces, with where they start in it."""
    count = _PIECE_BYTES // flat.element_size()
    return [(at, flat[at : min(at + count, end)]) for at in range(start, end, count)]


def _other_size(other: int, sent: int, wanted: int) -> BackendError:
    return BackendError(
        f"receive {wanted} elements of rank {other}",
        found=f"it sends {sent}",
        remedy="give all ranks of all_to_all split sizes that fit together",
    )
