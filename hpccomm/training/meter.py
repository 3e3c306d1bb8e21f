"""How long gradients are on their way, measured around a DDP hook.

No annotations are put off here: DDP compares those of a hook with its own.
"""

from threading import Lock
from time import monotonic
from typing import Any

import torch

from hpccomm.backends.c10d import GradBucket
from hpccomm.training.compression import Hook


class GradientTimer:
    """Counts the time in which at least one bucket is between its hook's call and its result, on this rank.

    Waiting for slower ranks is part of it, and so is what backward computes meanwhile. Other operations of the model,
    such as those of `SyncBatchNorm`, are not.

    ::

        timer = GradientTimer()
        ddp.register_comm_hook(None, timer.around(compress(torch.bfloat16)))
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._under_way = 0
        self._since = 0.0
        self._seconds = 0.0

    @property
    def seconds(self) -> float:
        """The time so far, in seconds; to be read between steps."""
        return self._seconds

    def around(self, hook: Hook) -> Hook:
        """Give a hook that does the same and is timed."""

        def timed(state: Any, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
            self._count(1)
            try:
                future = hook(state, bucket)
            except BaseException:
                self._count(-1)
                raise
            future.add_done_callback(lambda _: self._count(-1))
            return future

        return timed

    def _count(self, change: int) -> None:
        with self._lock:
            now = monotonic()
            if self._under_way:
                self._seconds += now - self._since
            self._since = now
            self._under_way += change
