"""The front door of movements: what carries users' tensors to other ranks unchanged, of any layout and size.

It validates, makes tensors dense, cuts what is longer than a library's call takes, and stores what came. Collectives
are validated when they are asked for, and read their tensors when they begin, since they may stand in a queue behind
others that write these. It reduces nothing; `door` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch

from hpccomm.backends.base import LARGEST_TAG, Backend, Operation, offsets, together, uneven
from hpccomm.backends.layout import adjoining, dense, is_dense, pieces, refuse_overlap, share_memory, store, writable
from hpccomm.backends.receives import Receives
from hpccomm.errors import OptionError, UnsupportedError


class MovementDoor:
    """What moves tensors, and the checks that every operation begins with."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
        self._limit = backend.max_count
        self._receives = Receives(backend)
        self._takes_cpu = "cpu" in backend.support.devices

    def broadcast(self, tensor: torch.Tensor, root: int) -> Operation:
        """Overwrite a tensor with that of rank `root`, which stays as it is."""
        self._check_device(tensor)
        self._check_rank("root", root)
        refuse_overlap(tensor)  # on the root too: the others, which write theirs, must not be left waiting or ahead
        if root == self.backend.rank:
            return self._broadcast_staged(tensor, root)
        buffer = writable(tensor)
        return self._stored(self._moved(self.backend.broadcast, buffer, root), buffer, tensor)

    def _broadcast_staged(self, tensor: torch.Tensor, root: int) -> Operation:
        yield from self._moved(self.backend.broadcast, dense(tensor), root)

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

    def gather(self, outputs: Sequence[torch.Tensor], source: torch.Tensor, root: int) -> Operation:
        """Give rank `root` the tensors of all ranks.

        Args:
            outputs: On the root one tensor a rank, or one for all; elsewhere none.
            source: This rank's tensor, of one size on all ranks.
            root: The rank that gets them.
        """
        self._check_device(source)
        self._check_equal_blocks(outputs, source, root, "gather")
        for output in outputs:
            refuse_overlap(output)
        return self._gather_staged(outputs, source, root)

    def _gather_staged(self, outputs: Sequence[torch.Tensor], tensor: torch.Tensor, root: int) -> Operation:
        source, count, size = dense(tensor).view(-1), tensor.numel(), self.backend.size
        whole = source.new_empty((size, count)) if outputs else None
        for start, end in pieces(count, self._share_of_call(source)):
            part = None if whole is None else source.new_empty((size, end - start))
            yield from self.backend.gather(part, source[start:end], root)
            if part is not None and whole is not None:
                whole[:, start:end] = part
        if whole is not None:
            for row, output in zip(whole.view(len(outputs), -1), outputs, strict=True):
                store(row, output)

    def scatter(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], root: int) -> Operation:
        """Give every rank its tensor of those that rank `root` holds.

        Args:
            output: This rank's tensor, of one size on all ranks.
            inputs: On the root one tensor a rank; elsewhere none.
            root: The rank that has them.
        """
        self._check_device(output)
        self._check_equal_blocks(inputs, output, root, "scatter")
        buffer = writable(output)
        return self._stored(self._scatter_pieces(buffer.view(-1), inputs, root), buffer, output)

    def _scatter_pieces(self, output: torch.Tensor, inputs: Sequence[torch.Tensor], root: int) -> Operation:
        whole = torch.stack([dense(block).view(-1) for block in inputs]) if inputs else None
        for start, end in pieces(output.numel(), self._share_of_call(output)):
            part = None if whole is None else whole[:, start:end].contiguous()
            yield from self.backend.scatter(output[start:end], part, root)

    def all_to_all(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Operation:
        """Exchange one tensor with each rank.

        Args:
            outputs: What comes from each rank, in order; any sizes.
            inputs: What goes to each rank, in order; any sizes.
        """
        size = self.backend.size
        for tensor in (*outputs, *inputs):
            self._check_device(tensor)
        dtypes = {tensor.dtype for tensor in (*outputs, *inputs)}
        if (len(outputs), len(inputs), len(dtypes)) != (size, size, 1):
            raise UnsupportedError(
                f"all_to_all among {size} ranks",
                found=f"{len(inputs)} tensors to send, {len(outputs)} to receive, of {sorted(map(str, dtypes))}",
                remedy="give one tensor for each rank both ways, all of one dtype",
            )
        for output in outputs:
            refuse_overlap(output)
        return self._all_to_all_staged(outputs, inputs)

    def _all_to_all_staged(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> Operation:
        sent, received = ([block.numel() for block in blocks] for blocks in (inputs, outputs))
        source, whole = adjoining(inputs), adjoining(outputs)
        if source is None:
            source = torch.cat([dense(block).view(-1) for block in inputs])
        if whole is not None and not share_memory(whole, source):
            yield from self.backend.all_to_all(whole, source, sent, received)
            return
        whole = source.new_empty(sum(received))
        yield from self.backend.all_to_all(whole, source, sent, received)
        for row, output in zip(torch.split(whole, received), outputs, strict=True):
            store(row, output)

    def _share_of_call(self, tensor: torch.Tensor) -> int:
        """Give the elements of one rank that a call may move, where it moves those of all."""
        return max(1, self._limit // tensor.element_size() // self.backend.size)

    def _check_equal_blocks(
        self, blocks: Sequence[torch.Tensor], mine: torch.Tensor, root: int, collective: str
    ) -> None:
        self._check_rank("root", root)
        if root == self.backend.rank:
            self._block_counts(blocks, mine, collective)
        fits = all(block.numel() in (mine.numel(), mine.numel() * self.backend.size) for block in blocks)
        if not fits or bool(blocks) != (root == self.backend.rank):
            raise UnsupportedError(
                f"{collective} of {mine.numel()} elements of each rank with root {root}",
                found=f"blocks of {[block.numel() for block in blocks]} elements on rank {self.backend.rank}",
                remedy="give the root, and it alone, one tensor of this size for each rank",
            )

    def send(self, tensor: torch.Tensor, dest: int, tag: int) -> Operation:
        """Send a tensor to rank `dest`."""
        self._check_device(tensor)
        self._check_rank("dest", dest)
        _check_tag(tag)
        if is_dense(tensor) and self._fits(tensor):  # also one of no elements, since a receiver may ask who sent it
            return self.backend.send(tensor.detach() if tensor.requires_grad else tensor, dest, tag)
        return self._send_staged(tensor, dest, tag)

    def _send_staged(self, tensor: torch.Tensor, dest: int, tag: int) -> Operation:
        buffer = dense(tensor)
        if self._fits(buffer):
            yield from self.backend.send(buffer, dest, tag)
        else:
            yield from self._posted(self.backend.send, buffer, dest, tag)

    def recv(self, tensor: torch.Tensor, source: int, tag: int) -> Operation:
        """Receive into a tensor of the size that rank `source` sends."""
        self._check_device(tensor)
        self._check_rank("source", source)
        _check_tag(tag)
        buffer = writable(tensor)
        move = self.backend.recv if self._fits(buffer) else partial(self._posted, self.backend.recv)
        receiving = self._receives.begin(tag, lambda: move(buffer, source, tag))
        return receiving if is_dense(tensor) else self._stored(receiving, buffer, tensor)

    def recv_any(self, tensor: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Receive into a tensor of the size that some rank sends, and append that rank to `found`."""
        self._check_device(tensor)
        _check_tag(tag)
        buffer = writable(tensor)
        parts = torch.split(buffer.view(-1), max(1, self._limit // buffer.element_size()))
        if len(parts) == 1:
            receiving = self._receives.begin(tag, lambda: self.backend.recv_any(buffer, tag, found))
        else:
            receiving = self._receives.begin_of_any(parts, tag, found)
        return self._stored(receiving, buffer, tensor)

    def _stored(self, receiving: Operation, buffer: torch.Tensor, tensor: torch.Tensor) -> Operation:
        yield from receiving
        store(buffer, tensor)

    def _posted(self, move: Callable[..., Operation], buffer: torch.Tensor, peer: int, tag: int) -> Operation:
        """Post all pieces of a message at once, so that those of the next one with this peer and tag come after."""
        return together(self._pieces(move, buffer, peer, tag))

    def _moved(self, move: Callable[..., Operation], buffer: torch.Tensor, *arguments: int) -> Operation:
        for operation in self._pieces(move, buffer, *arguments):
            yield from operation

    def _fits(self, buffer: torch.Tensor) -> bool:
        """Tell whether one call of the library moves a buffer, which is the short way."""
        return buffer.numel() * buffer.element_size() <= self._limit

    def _pieces(self, move: Callable[..., Operation], buffer: torch.Tensor, *arguments: int) -> Iterator[Operation]:
        flat, limit = buffer.view(-1), max(1, self._limit // buffer.element_size())
        for start, end in pieces(flat.numel(), limit):
            yield move(flat[start:end], *arguments)

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


def _check_tag(tag: int) -> None:
    if not 0 <= tag <= LARGEST_TAG:
        raise OptionError(
            f"communicate with tag {tag}",
            found=f"tags from 0 to {LARGEST_TAG} are good on every backend and under every MPI library",
            remedy="use one of these",
        )
