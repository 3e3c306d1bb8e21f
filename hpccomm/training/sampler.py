"""A sampler that can begin in the middle of an epoch, where a run before has ended, on as many ranks or on others."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

from torch.utils.data import DistributedSampler


class ResumableSampler(DistributedSampler[Any]):
    """torch's DistributedSampler, which leaves out what the ranks have seen of an epoch already.

    Every row of an epoch is seen once, also where the ranks that go on are fewer or more than those that began; only
    what fills up the last rows, so that all ranks have as many, is seen twice.

    Args:
        options: DistributedSampler's.
    """

    def __init__(self, *options: Any, **more: Any) -> None:
        super().__init__(*options, **more)
        self._whole: DistributedSampler[Any] = DistributedSampler(
            self.dataset, num_replicas=1, rank=0, shuffle=self.shuffle, seed=self.seed, drop_last=self.drop_last
        )
        self._seen = 0

    def set_epoch(self, epoch: int) -> None:
        """Go to the beginning of an epoch; of the one where it is, what was seen stays left out."""
        if epoch != self.epoch:
            self._seen = 0
        super().set_epoch(epoch)

    def set_position(self, epoch: int, seen: int = 0) -> None:
        """Go to an epoch.

        Args:
            epoch: Its number, which makes its order.
            seen: How many rows of it all ranks together have seen.
        """
        self.set_epoch(epoch)
        self._seen = seen

    def __iter__(self) -> Iterator[int]:
        self._whole.set_epoch(self.epoch)
        order = [*self._whole]
        rest = islice(cycle(order), self._seen, self._seen + len(self) * self.num_replicas)
        return islice(rest, self.rank, None, self.num_replicas)

    def __len__(self) -> int:
        left = max(0, len(self._whole) - self._seen)
        return left // self.num_replicas if self.drop_last else -(-left // self.num_replicas)
