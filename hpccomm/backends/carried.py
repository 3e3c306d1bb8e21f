"""What backends have in common that leave messages between two ranks, and barriers, to another backend."""

from __future__ import annotations

import torch

from hpccomm.backends.base import Backend, Operation


class CarriedBackend(Backend):
    """A backend with a carrier, set by whoever derives from it."""

    _carrier: Backend

    def barrier(self) -> Operation:
        """Use the carrier's barrier."""
        return self._carrier.barrier()

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Use the carrier's send."""
        return self._carrier.send(buffer, dest, tag)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Use the carrier's recv."""
        return self._carrier.recv(buffer, source, tag)

    @property
    def asks_senders(self) -> bool:
        """What the carrier says."""
        return self._carrier.asks_senders

    def recv_any(self, buffer: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Use the carrier's recv_any."""
        return self._carrier.recv_any(buffer, tag, found)

    def close(self) -> None:
        """Close the carrier."""
        self._carrier.close()
        super().close()
