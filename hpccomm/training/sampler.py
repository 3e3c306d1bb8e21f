"""A sampler that can begin in the middle of an epoch, where a run before has ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DistributedSampler


class ResumableSampler(DistributedSampler[Any]):
    """torch's DistributedSampler, which leaves out what this rank has seen of an epoch already.

    Args:
        options: DistributedSampler's.
    """

    def __init__(self, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        self._seen = 0

    def set_position(self, epoch: int, seen: int = 0) -> None:
        """Go to an epoch.

        Args:
            epoch: Its number, which makes its order.
            seen: How many rows of it this rank has seen.
        """
        self.set_epoch(epoch)
        self._seen = min(seen, self.num_samples)

    def __iter__(self) -> Iterator[int]:
        return islice(super().__iter__(), self._seen, None)

    def __len__(self) -> int:
        return self.num_samples - self._seen
