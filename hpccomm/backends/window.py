"""Windows: where ranks may not read each other's memory, each copies what it shows into memory that all map."""

from __future__ import annotations

import torch

from hpccomm.backends.shared import share
from hpccomm.exchange import Exchange

_WINDOW_BYTES = 2 * 2**20


class WindowMemory:
    """A window of each rank of a group; collective to make.

    Attributes:
        most_bytes: What a rank can show at once.
    """

    most_bytes: int | None = _WINDOW_BYTES

    def __init__(self, exchange: Exchange) -> None:
        memory = share(exchange, exchange.size * _WINDOW_BYTES)
        self._windows = torch.frombuffer(memory, dtype=torch.uint8).view(exchange.size, _WINDOW_BYTES)
        self._own = self._windows[exchange.rank]

    def show(self, tensor: torch.Tensor) -> torch.Tensor:
        """Give a dense tensor as the others may read it: in this rank's window, until the next is shown."""
        shown = self._own[: tensor.numel() * tensor.element_size()].view(tensor.dtype).view(tensor.shape)
        return shown.copy_(tensor)

    def where(self, tensor: torch.Tensor) -> int:
        """Give where the others find a shown tensor."""
        return tensor.data_ptr() - self._own.data_ptr()

    def read(self, rank: int, where: int, into: torch.Tensor) -> None:
        """Copy what stands there in a rank's window into a dense tensor."""
        size = into.numel() * into.element_size()
        into.copy_(self._windows[rank, where : where + size].view(into.dtype).view(into.shape))
