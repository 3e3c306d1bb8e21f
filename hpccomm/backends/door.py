"""The front door of every backend: validate, stage, chunk, run, scale once, copy back.

It turns a user's tensors into what `Backend` takes and back. Its operations are generators like the backend's. It
knows neither torch's process groups nor deadlines, and no backend in particular.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import torch

from hpccomm.backends.base import Backend, Operation, offsets, resumed, uneven
from hpccomm.backends.c10d import Op
from hpccomm.backends.layout import dense, is_dense, pieces, refuse_overlap, share_memory, store, writable
from hpccomm.backends.reduction import Factor, deliver, load, scale
from hpccomm.backends.support import Plan, plan
from hpccomm.errors import OptionError, UnsupportedError


class FrontDoor:
    """All that users' tensors go through on the way to a backend and back."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._limit = min(backend.max_count, _limit_asked())
        self._takes_cpu = "cpu" in backend.support.devices
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

    def broadcast(self, tensor: torch.Tensor, root: int) -> Operation:
        """Overwrite a tensor with that of rank `root`, which stays as it is."""
        self._check_device(tensor)
        self._check_rank("root", root)
        if root == self.backend.rank:
            return self._moved(self.backend.broadcast, dense(tensor), root)
        buffer = writable(tensor)
        return self._stored(self._moved(self.backend.broadcast, buffer, root), buffer, tensor)

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

    def all_gather(self, outputs: Sequence[torch.Tensor], source: torch.Tensor) -> Operation:
        """Give every rank the tensors of all ranks.

        Args:
            outputs: One tensor a rank, or one tensor for the blocks of all ranks in equal shares.
            source: This rank's tensor; may be its own place in a single output.
        """
        self._check_device(source)
        counts = self._block_counts(outputs, source, "all_gather")
        for output in outputs:
            refuse_overlap(output)
        return self._all_gather_staged(outputs, source, counts)

    def _all_gather_staged(
        self, outputs: Sequence[torch.Tensor], source: torch.Tensor, counts: Sequence[int]
    ) -> Operation:
        sent = dense(source).view(-1)
        single = len(outputs) == 1
        buffer = writable(outputs[0]).view(-1) if single else sent.new_empty(sum(counts))
        yield from self._all_gather_pieces(buffer, sent, counts)
        for start, output in zip(offsets([o.numel() for o in outputs]), outputs, strict=False):
            store(buffer[start : start + output.numel()], output)

    def _all_gather_pieces(self, buffer: torch.Tensor, source: torch.Tensor, counts: Sequence[int]) -> Operation:
        limit = max(1, self._limit // source.element_size())
        if 0 < sum(counts) <= limit:
            yield from self.backend.all_gather(buffer, source, uneven(counts))
            return
        starts, source = offsets(counts), source.clone()
        for start, end in pieces(max(counts), max(1, limit // self.backend.size)):
            cut = [(min(start, count), min(end, count)) for count in counts]
            sizes = [b - a for a, b in cut]
            part = source.new_empty(sum(sizes))
            mine = source[slice(*cut[self.backend.rank])]
            yield from self.backend.all_gather(part, mine, uneven(sizes))
            for at, (a, b), block in zip(starts, cut, torch.split(part, sizes), strict=False):
                buffer[at + a : at + b] = block

    def send(self, tensor: torch.Tensor, dest: int, tag: int) -> Operation:
        """Send a tensor to rank `dest`."""
        self._check_device(tensor)
        self._check_rank("dest", dest)
        return self._posted(self.backend.send, dense(tensor), dest, tag)

    def recv(self, tensor: torch.Tensor, source: int, tag: int) -> Operation:
        """Receive into a tensor of the size that rank `source` sends."""
        self._check_device(tensor)
        self._check_rank("source", source)
        buffer = writable(tensor)
        return self._stored(self._posted(self.backend.recv, buffer, source, tag), buffer, tensor)

    def _stored(self, receiving: Operation, buffer: torch.Tensor, tensor: torch.Tensor) -> Operation:
        yield from receiving
        store(buffer, tensor)

    def barrier(self) -> Operation:
        """Wait until every rank has come here."""
        return self.backend.barrier()

    def _posted(self, move: Callable[..., Operation], buffer: torch.Tensor, peer: int, tag: int) -> Operation:
        """Post all pieces of a message at once, so that those of the next one with this peer and tag come after."""
        posted = []
        for operation in self._pieces(move, buffer, peer, tag):
            waits = next(operation, None)
            if waits is not None:
                posted.append(resumed(waits, operation))
        for operation in posted:
            yield from operation

    def _moved(self, move: Callable[..., Operation], buffer: torch.Tensor, *arguments: int) -> Operation:
        for operation in self._pieces(move, buffer, *arguments):
            yield from operation

    def _pieces(self, move: Callable[..., Operation], buffer: torch.Tensor, *arguments: int) -> Iterator[Operation]:
        flat, limit = buffer.view(-1), max(1, self._limit // buffer.element_size())
        for start, end in pieces(flat.numel(), limit):
            yield move(flat[start:end], *arguments)

    def _plan(self, op: Op, tensor: torch.Tensor) -> Plan:
        self._check_device(tensor)
        last = self._last_plans.get(tensor.dtype)
        if last is not None and last[0] is op:
            return last[1]
        found = plan(self.backend.support, op, tensor.dtype, name=self.backend.expression)
        self._last_plans[tensor.dtype] = op, found
        return found

    def _check_device(self, tensor: torch.Tensor) -> None:
        known = (tensor.is_cpu and self._takes_cpu) or tensor.device.type in self.backend.support.devices
        if not known or tensor.layout is not torch.strided:
            raise UnsupportedError(
                f"communicate a {tensor.layout} tensor on {tensor.device} over {self.backend.expression}",
                found=f"it takes dense tensors on {', '.join(sorted(self.backend.support.devices))}",
                remedy="move the tensor, or take another backend",
                everywhere=True,
            )

    def _check_rank(self, role: str, rank: int) -> None:
        if not 0 <= rank < self.backend.size:
            raise OptionError(
                f"communicate with {role} {rank} over {self.backend.expression}",
                found=f"the group has ranks 0 to {self.backend.size - 1}",
                remedy="give a rank of the group",
            )

    def _block_counts(self, blocks: Sequence[torch.Tensor], mine: torch.Tensor, collective: str) -> list[int]:
        size, rank = self.backend.size, self.backend.rank
        single = len(blocks) == 1 and size > 1
        counts = [mine.numel()] * size if single else [block.numel() for block in blocks]
        fits = len(counts) == size and counts[rank] == mine.numel()
        total = sum(block.numel() for block in blocks)
        if not fits or total != sum(counts) or any(block.dtype != mine.dtype for block in blocks):
            raise UnsupportedError(
                f"{collective} of {mine.numel()} elements of {mine.dtype} on each of {size} ranks",
                found=f"blocks of {[block.numel() for block in blocks]} elements of "
                f"{', '.join(sorted({str(block.dtype) for block in blocks}))}",
                remedy="give one block a rank, of this rank's size at its place, all of one dtype",
            )
        return counts


def _limit_asked() -> int:
    text = os.environ.get("HPCCOMM_MAX_COUNT", "")
    if text and not (text.isdecimal() and int(text) > 0):
        raise OptionError(
            f"read HPCCOMM_MAX_COUNT={text!r}",
            found="not a positive whole number",
            remedy="give the most elements (bytes, where data is only moved) that one library call gets",
        )
    return int(text) if text else 2**31 - 1
