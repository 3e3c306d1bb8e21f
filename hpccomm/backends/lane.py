"""A group's stream on a GPU: operations on its tensors are queued there, and callers' streams wait for them.

An operation is stepped as any other, but whatever it queues goes to the lane, behind what its caller's stream had come
to when it was asked for. It ends for the host when all is queued; for the GPU at the event `Carried.done`. It knows no
backend.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, cast

import torch

from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.backends.device import Device, Event


class Carried(Generator[str | LibraryCall, None, None]):
    """An operation that is stepped in a stream.

    Args:
        device: Orders the streams.
        stream: Where its work is queued.
        ready: What its work waits for; None for nothing.
        operation: The operation.

    Attributes:
        device: As given.
        stream: As given.
        done: Where its work ends in the stream; known once it has ended for the host.
    """

    done: Event

    def __init__(self, device: Device, stream: Any, ready: Event | None, operation: Operation) -> None:
        self.device, self.stream = device, stream
        self._ready, self._operation = ready, operation

    def send(self, value: None) -> str | LibraryCall:
        """Step it."""
        with self.device.on(self.stream):
            if self._ready is not None:
                self.device.wait(self.stream, self._ready)
                self._ready = None
            try:
                return next(self._operation)
            except StopIteration:
                self.done = self.device.record(self.stream)
                raise

    def throw(self, *error: Any) -> Any:
        """Raise an error inside it."""
        with self.device.on(self.stream):
            return self._operation.throw(*error)

    def let_wait(self) -> None:
        """Have the caller's stream wait for its end on the GPU."""
        self.device.wait(self.device.current(), self.done)

    def inside(self, change: Callable[[Operation], Operation]) -> Carried:
        """Put something around the operation, in the same stream."""
        return Carried(self.device, self.stream, self._ready, change(self._operation))


def combined(operations: Iterable[Operation], how: Callable[[Iterable[Operation]], Operation]) -> Operation:
    """Make one operation of several, carried where these are.

    Args:
        operations: At least one, all carried or none.
        how: Makes one of them.
    """
    parts = list(operations)
    first = parts[0] if parts else None
    return Carried(first.device, first.stream, None, how(parts)) if type(first) is Carried else how(parts)


class Lane:
    """One group's way to the GPU.

    Args:
        device: Orders the streams.
        urgent: Whether its work goes before that of others.
        takes_barriers: Whether operations without tensors go there too.
    """

    def __init__(self, device: Device, *, urgent: bool = False, takes_barriers: bool = False) -> None:
        self.device, self.stream = device, device.stream(urgent=urgent)
        self._takes_barriers = takes_barriers

    def takes(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Tell whether an operation on these goes through the lane."""
        known = [self.device.owns(tensor) for tensor in tensors]
        return any(known) if known else self._takes_barriers

    def carry(self, tensors: Iterable[torch.Tensor], begin: Callable[[], Operation]) -> Carried:
        """Make an operation that waits for the caller's stream and is stepped in the lane's.

        Args:
            tensors: The user's, which the lane will read and write.
            begin: Makes the operation; what it allocates belongs to the lane.
        """
        ready = self.device.record(self.device.current())
        for tensor in tensors:
            if self.device.owns(tensor):
                self.device.keep(tensor, self.stream)
        with self.device.on(self.stream):
            return Carried(self.device, self.stream, ready, begin())


class LaneDoor:
    """A front door whose operations on a GPU's tensors are carried by a lane; all others pass as they are."""

    def __init__(self, door: Any, lane: Lane) -> None:
        self._door, self._lane = door, lane

    def __getattr__(self, name: str) -> Callable[..., Operation]:
        method = getattr(self._door, name)

        def enter(*arguments: Any) -> Operation:
            tensors = list(_tensors(arguments))
            if self._lane.takes(tensors):
                return self._lane.carry(tensors, lambda: method(*arguments))
            return cast(Operation, method(*arguments))

        return enter


def _tensors(arguments: Iterable[Any]) -> Iterator[torch.Tensor]:
    for argument in arguments:
        if isinstance(argument, torch.Tensor):
            yield argument
        elif isinstance(argument, (list, tuple)):
            yield from _tensors(argument)
