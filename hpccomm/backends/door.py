"""The front door of every backend: validate, stage, chunk, run, scale once, copy back.

It turns a user's tensors into what `Backend` takes and back; here for reductions, in `movements` for the rest. Its
operations are generators like the backend's. It knows neither torch's process groups nor deadlines, and no backend in
particular.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from hpccomm.backends.base import Backend, Operation, offsets, uneven
from hpccomm.backends.c10d import Op
from hpccomm.backends.layout import is_dense, pieces, refuse_overlap, share_memory
from hpccomm.backends.movements import MovementDoor
from hpccomm.backends.reduction import Factor, deliver, load, scale
from hpccomm.backends.support import Plan, plan


class FrontDoor(MovementDoor):
    """All that users' tensors go through on the way to a backend and back."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._last_plans: dict[torch.dtype, tuple[Op, Plan]] = {}

    def all_reduce(self, tensor: torch.Tensor, op: Op, factor: Factor = None) -> Operation:
        """Reduce a tensor of any shape and layout over all ranks, in place.

        Args:
            tensor: The same shape and dtype on every rank.
            op: The operator.
            factor: What PREMUL_SUM multiplies this rank's tensor by.
        """
        how = self._plan(op, tensor)
        if how.direct and is_dense(tensor):
            if 0 < tensor.numel() <= self._limit:
                return self.backend.all_reduce(tensor.detach() if tensor.requires_grad else tensor, how.op)
            return self._all_reduce_pieces(tensor.detach().view(-1), how.op)
        refuse_overlap(tensor)
        return self._all_reduce_staged(tensor, how, factor)

    def _all_reduce_staged(self, tensor: torch.Tensor, how: Plan, factor: Factor) -> Operation:
        buffer = load(tensor, how, factor)
        yield from self._all_reduce_pieces(buffer, how.op)
        scale(buffer, how, self.backend.size)
        deliver(buffer, tensor, how)

    def _all_reduce_pieces(self, buffer: torch.Tensor, op: Op) -> Operation:
        for start, end in pieces(buffer.numel(), self._limit):
            yield from self.backend.all_reduce(buffer[start:end], op)

    def reduce(self, tensor: torch.Tensor, op: Op, root: int, factor: Factor = None) -> Operation:
        """Reduce a tensor over all ranks into that of rank `root`; the others' stay as they are."""
        how = self._plan(op, tensor)
        self._check_rank("root", root)
        refuse_overlap(tensor)
        return self._reduce_staged(tensor, how, root, factor)

    def _reduce_staged(self, tensor: torch.Tensor, how: Plan, root: int, factor: Factor) -> Operation:
        receives, buffer = root == self.backend.rank, load(tensor, how, factor)
        if not receives and share_memory(buffer, tensor):
            buffer = buffer.clone()
        for start, end in pieces(buffer.numel(), self._limit):
            yield from self.backend.reduce(buffer[start:end], how.op, root)
        if receives:
            scale(buffer, how, self.backend.size)
            deliver(buffer, tensor, how)

    def reduce_scatter(
        self, output: torch.Tensor, inputs: Sequence[torch.Tensor], op: Op, factor: Factor = None
    ) -> Operation:
        """Reduce over all ranks, leaving block `rank` in `output`.

        Args:
            output: This rank's block.
            inputs: One tensor a rank, or one tensor that holds the blocks of all ranks in equal shares.
            op: The operator.
            factor: What PREMUL_SUM multiplies this rank's input by.
        """
        how = self._plan(op, output)
        counts = self._block_counts(inputs, output, "reduce_scatter")
        refuse_overlap(output)
        return self._reduce_scatter_staged(output, inputs, how, counts, factor)

    def _reduce_scatter_staged(
        self, output: torch.Tensor, inputs: Sequence[torch.Tensor], how: Plan, counts: Sequence[int], factor: Factor
    ) -> Operation:
        loaded = [load(block, how, factor) for block in inputs]
        source = loaded[0] if len(loaded) == 1 else torch.cat(loaded)
        direct = how.direct and is_dense(output) and not share_memory(source, output)
        buffer = output.detach().view(-1) if direct else source.new_empty(counts[self.backend.rank] * how.width)
        yield from self._reduce_scatter_pieces(buffer, source, how, counts)
        if not direct:
            scale(buffer, how, self.backend.size)
            deliver(buffer, output, how)

    def _reduce_scatter_pieces(
        self, buffer: torch.Tensor, source: torch.Tensor, how: Plan, counts: Sequence[int]
    ) -> Operation:
        counts = [count * how.width for count in counts]
        if 0 < sum(counts) <= self._limit:
            yield from self.backend.reduce_scatter(buffer, source, how.op, uneven(counts))
            return
        starts, limit = offsets(counts), max(1, self._limit // self.backend.size)
        for start, end in pieces(max(counts), limit):
            cut = [(min(start, count), min(end, count)) for count in counts]
            part = torch.cat([source[at + a : at + b] for at, (a, b) in zip(starts, cut, strict=False)])
            mine = slice(*cut[self.backend.rank])
            sizes = [b - a for a, b in cut]
            yield from self.backend.reduce_scatter(buffer[mine], part, how.op, uneven(sizes))

    def barrier(self) -> Operation:
        """Wait until every rank has come here."""
        return self.backend.barrier()

    def _plan(self, op: Op, tensor: torch.Tensor) -> Plan:
        self._check_device(tensor)
        last = self._last_plans.get(tensor.dtype)
        if last is not None and last[0] is op:
            return last[1]
        found = plan(self.backend.support, op, tensor.dtype, name=self.backend.expression)
        self._last_plans[tensor.dtype] = op, found
        return found
