"""A backend of host memory for tensors on a GPU: through pinned memory, which the GPU copies from and to by itself.

What can be cut is, so that one piece comes down, another is communicated and a third goes up at once. Pieces depend on
the size alone, so that all ranks cut alike; pinned memory is torch's, which keeps it for the next piece. Tensors in
host memory go their way untouched. It knows no backend in particular.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from hpccomm.backends.base import PREPARES, Backend, Operation
from hpccomm.backends.c10d import Op
from hpccomm.backends.device import Device, Event
from hpccomm.backends.layout import pieces
from hpccomm.backends.turns import Turns

PIECE_BYTES = 4 << 20


class StagedBackend(Backend):
    """Another backend, which also takes a GPU's tensors.

    Args:
        inner: Takes tensors in host memory.
        device: The GPU.
        piece_bytes: Bytes of one piece.
    """

    def __init__(self, inner: Backend, device: Device, *, piece_bytes: int = PIECE_BYTES) -> None:
        super().__init__(inner.context)
        self._inner, self._device, self._piece_bytes = inner, device, piece_bytes
        self._down, self._up, self._turns = device.stream(), device.stream(), Turns()
        self.support = replace(inner.support, devices=inner.support.devices | {"cuda"})
        self.max_count, self.expression, self.checks = inner.max_count, inner.expression, inner.checks
        self.notes = inner.notes

    @property
    def fell_back(self) -> Sequence[str]:  # type: ignore[override]
        """What the inner backend says."""
        return self._inner.fell_back

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Reduce in pieces."""
        if not self._device.owns(buffer):
            return self._inner.all_reduce(buffer, op)
        return self._in_pieces(buffer, lambda host: self._inner.all_reduce(host, op))

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Broadcast in pieces."""
        if not self._device.owns(buffer):
            return self._inner.broadcast(buffer, root)
        is_root = root == self.rank
        return self._in_pieces(buffer, lambda host: self._inner.broadcast(host, root), down=is_root, up=not is_root)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Reduce in pieces."""
        if not self._device.owns(buffer):
            return self._inner.reduce(buffer, op, root)
        return self._in_pieces(buffer, lambda host: self._inner.reduce(host, op, root), up=root == self.rank)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce and scatter at once."""
        return self._whole(output, source, lambda into, of: self._inner.reduce_scatter(into, of, op, counts))

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Gather at once."""
        return self._whole(output, source, lambda into, of: self._inner.all_gather(into, of, counts))

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Gather at once."""
        return self._whole(output, source, lambda into, of: self._inner.gather(into, of, root))

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Scatter at once."""
        return self._whole(output, source, lambda into, of: self._inner.scatter(into, of, root))

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Exchange at once."""
        return self._whole(output, source, lambda into, of: self._inner.all_to_all(into, of, sent, received))

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Send at once, as the receiver may have its tensor anywhere; after the sends before it."""
        if not self._device.owns(buffer):
            return self._inner.send(buffer, dest, tag)
        host = self._pinned_like(buffer)
        return self._turns.take(("send", dest), self._copied(host, buffer), lambda: self._inner.send(host, dest, tag))

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Receive at once."""
        return self._whole(buffer, None, lambda into, _: self._inner.recv(into, source, tag))

    @property
    def asks_senders(self) -> bool:
        """What the inner backend says."""
        return self._inner.asks_senders

    def recv_any(self, buffer: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Receive at once."""
        return self._whole(buffer, None, lambda into, _: self._inner.recv_any(into, tag, found))

    def barrier(self) -> Operation:
        """Use the inner backend's barrier."""
        return self._inner.barrier()

    def close(self) -> None:
        """Close the inner backend."""
        self._inner.close()

    def _in_pieces(
        self, buffer: torch.Tensor, run: Callable[[torch.Tensor], Operation], *, down: bool = True, up: bool = True
    ) -> Operation:
        """Bring pieces down, run an operation on each, and take them up, all three at once on different ones."""
        device, lane, flat = self._device, self._device.current(), buffer.view(-1)
        begun = device.record(lane)
        for stream in (self._down, self._up):
            device.wait(stream, begun)
        limit = max(1, self._piece_bytes // flat.element_size())
        parts = [flat[start:end] for start, end in pieces(flat.numel(), limit)]
        coming = [self._fetch(part, down) for part in parts[:1]]
        try:
            for number, part in enumerate(parts):
                coming += [self._fetch(part, down) for part in parts[number + 1 : number + 2]]
                host, came = coming.pop(0)
                yield from self._past(came)
                yield from run(host)
                if up:
                    with device.on(self._up):
                        device.copy(part, host)
        finally:
            for stream in (self._down, self._up):
                device.wait(lane, device.record(stream))

    def _fetch(self, part: torch.Tensor, down: bool) -> tuple[torch.Tensor, Event | None]:
        """Give pinned memory for a part, and the event at which it holds the part's values, if it is to."""
        host = self._pinned_like(part)
        if not down:
            return host, None
        with self._device.on(self._down):
            self._device.copy(host, part)
        return host, self._device.record(self._down)

    def _whole(
        self, output: torch.Tensor | None, source: torch.Tensor | None, run: Callable[[Any, Any], Operation]
    ) -> Operation:
        """Run an operation on copies of both tensors, of which either may be missing."""
        given = source if output is None else output
        assert given is not None
        if not self._device.owns(given):
            yield from run(output, source)
            return
        into, of = (None if tensor is None else self._pinned_like(tensor) for tensor in (output, source))
        if of is not None and source is not None:
            yield from self._copied(of, source)
        yield from run(into, of)
        if into is not None and output is not None:
            self._device.copy(output, into)

    def _copied(self, host: torch.Tensor, source: torch.Tensor) -> Operation:
        """Copy a tensor down, and wait until it is there."""
        self._device.copy(host, source)
        yield from self._past(self._device.record(self._device.current()))

    def _past(self, event: Event | None) -> Operation:
        while event is not None and not event.query():
            yield PREPARES

    def _pinned_like(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = self._device.pinned(tensor.numel() * tensor.element_size())
        return memory.view(tensor.dtype).view(tensor.shape)


def staged(backend: Backend, device: Device | None) -> Backend:
    """Have a backend take a GPU's tensors, where there is a GPU and it does not do so by itself."""
    return backend if device is None or "cuda" in backend.support.devices else StagedBackend(backend, device)
