"""The little that is asked of a GPU besides torch's operations: streams, events, pinned memory, asynchronous copies.

`Cuda` asks torch. Whatever orders work on GPUs goes through a `Device`, so that the order can be observed and tested
where there is none.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch


class Event(Protocol):
    """A place in a stream's work."""

    def query(self) -> bool:
        """Tell whether the device has come past it."""
        ...


class Device(Protocol):
    """A device whose work is queued in streams."""

    def owns(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is in this kind of device's memory."""
        ...

    def current(self) -> Any:
        """Give the stream that this thread works in."""
        ...

    def stream(self, *, urgent: bool = False) -> Any:
        """Make a stream; an urgent one's work goes before that of others."""
        ...

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Work in a stream, and on its device, in this thread."""
        ...

    def record(self, stream: Any) -> Event:
        """Mark the present end of a stream's work."""
        ...

    def wait(self, stream: Any, event: Event) -> None:
        """Have a stream's further work wait for an event; the host does not."""
        ...

    def keep(self, tensor: torch.Tensor, stream: Any) -> None:
        """Leave a tensor's memory to nothing else before the present work of a stream is done."""
        ...

    def pinned(self, count: int) -> torch.Tensor:
        """Give so many bytes of the host's memory that the device copies from and to by itself."""
        ...

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Queue a copy between the device and pinned memory in the stream that this thread works in."""
        ...

    def future(self) -> torch.futures.Future[Any]:
        """Make a future whose waiters' streams wait for the work that was queued when it was completed."""
        ...


class Cuda:
    """One of torch's CUDA devices.

    Args:
        device: Which one.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def owns(self, tensor: torch.Tensor) -> bool:
        """Tell whether a tensor is on a GPU."""
        return tensor.is_cuda

    def current(self) -> torch.cuda.Stream:
        """Give this thread's current stream of the device."""
        return torch.cuda.current_stream(self._device)

    def stream(self, *, urgent: bool = False) -> torch.cuda.Stream:
        """Take a stream of torch's pool."""
        return torch.cuda.Stream(self._device, priority=-int(urgent))  # type: ignore[no-untyped-call]

    def on(self, stream: torch.cuda.Stream) -> AbstractContextManager[Any]:
        """Make it the current stream, and its device the current device."""
        return torch.cuda.stream(stream)

    def record(self, stream: torch.cuda.Stream) -> torch.cuda.Event:
        """Record an event."""
        event: torch.cuda.Event = stream.record_event()
        return event

    def wait(self, stream: torch.cuda.Stream, event: Any) -> None:
        """Call cudaStreamWaitEvent."""
        stream.wait_event(event)

    def keep(self, tensor: torch.Tensor, stream: torch.cuda.Stream) -> None:
        """Tell torch's allocator that a stream uses a tensor."""
        tensor.record_stream(stream)

    def pinned(self, count: int) -> torch.Tensor:
        """Allocate page-locked memory."""
        return torch.empty(count, dtype=torch.uint8, device="cpu", pin_memory=True)

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Queue a copy."""
        into.copy_(source, non_blocking=True)

    def future(self) -> torch.futures.Future[Any]:
        """Make a future that knows the device."""
        return torch.futures.Future(devices=[self._device])


def device_of(device: torch.device) -> Device | None:
    """Give what orders work on a device; None for the CPU, where work is done when a call returns."""
    return None if device.type == "cpu" else Cuda(device)
