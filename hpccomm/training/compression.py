"""A DDP hook that sends gradients as 16-bit floats and sums them in float32.

No annotations are put off here: DDP compares those of a hook with its own.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from hpccomm.backends.c10d import GradBucket
from hpccomm.errors import OptionError

Hook: TypeAlias = Callable[[Any, GradBucket], torch.futures.Future[torch.Tensor]]
"""What `register_comm_hook` of DDP takes."""

_ON_THE_WAY = 1


def compress(dtype: torch.dtype, *, divide: str = "after") -> Hook:
    """Make a hook that averages gradients over 16-bit floats on the wire.

    An all_reduce of 16-bit floats would not do: where the group sums them in float32, it sends float32, and where it
    sums them as they are, every hop rounds and the sum can overflow. So every rank gets its share of everybody's
    gradients (all_to_all), adds it up in float32 (float64 for float64 gradients), rounds it once and hands it to all
    (all_gather). An average is off by one rounding of each gradient, one of the result and a sum in float32,
    whatever the number of ranks, and it has the same bits on all of them.

    Where to divide by the number of ranks is a choice of range. float16 ends at 65504 and loses digits below 6e-5:

    * ``after`` the sum: gradients are rounded as they are, so one beyond 65504 becomes infinite. Small ones keep
      what float16 keeps of them.
    * ``before``: gradients are rounded when divided, so that those up to 65504 times the ranks go through (the average
      must still be one of float16); what is below 3e-8 times the ranks becomes 0.

    bfloat16 has float32's range and 8 bits of precision, so it makes no difference there.

    Cost for P ranks and S bytes of float32: each rank sends 2(P-1)/P * S/2 bytes in two operations. On a hierarchy
    whose nodes have more than two ranks, its own all_reduce sends less between nodes: take plain groups. A bucket's
    gathering begins when the next bucket is ready, or with the last one; it holds S/2 bytes twice until then.

    Register it as ``ddp.register_comm_hook(None, compress(torch.bfloat16))``; its state is a process group or None
    for the default one. Each DDP needs a hook of its own, which keeps what of its backward is on the way.

    Args:
        dtype: float16 or bfloat16.
        divide: ``before`` or ``after`` the sum.

    Raises:
        OptionError: Another dtype or word.
    """
    if dtype not in (torch.float16, torch.bfloat16) or divide not in ("before", "after"):
        raise OptionError(
            f"send gradients as {dtype}, divided {divide!r}",
            found="a dtype that is none of 16-bit floats, or neither 'before' nor 'after'",
            remedy="take torch.float16 or torch.bfloat16, and divide='before' or divide='after'",
            everywhere=True,
        )
    on_the_way: deque[_Exchange] = deque()

    def compressed(group: dist.ProcessGroup | None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        if bucket.index() == 0:
            on_the_way.clear()  # what a failed backward has left
        exchange = _Exchange(bucket.buffer(), group, dtype, before=divide == "before")
        on_the_way.append(exchange)
        while len(on_the_way) > (0 if bucket.is_last() else _ON_THE_WAY):
            on_the_way.popleft().hand_out()
        return exchange.future

    return compressed


class _Exchange:
    """One bucket: on its way to the ranks that add it up, then back.

    Args:
        buffer: The gradients, one after the other; their averages in the end.
        group: The ranks; None for the default group.
        dtype: That of the wire.
        before: Whether to divide before the sum.
    """

    def __init__(
        self, buffer: torch.Tensor, group: dist.ProcessGroup | None, dtype: torch.dtype, *, before: bool
    ) -> None:
        self._buffer, self._group, self._before = buffer, group, before
        self._size = dist.get_world_size(group)
        self._wire = torch.zeros(-(-buffer.numel() // self._size) * self._size, dtype=dtype, device=buffer.device)
        self._wire[: buffer.numel()] = buffer / self._size if before else buffer
        self._received = torch.empty_like(self._wire)
        self._sent = dist.all_to_all_single(self._received, self._wire, group=group, async_op=True)
        self._ended: torch.futures.Future[Any] = torch.futures.Future()
        self.future: torch.futures.Future[torch.Tensor] = self._ended.then(self._outcome)

    def hand_out(self) -> None:
        """Add this rank's share up and begin to hand it to all."""
        assert self._sent is not None
        self._sent.wait()
        wide = torch.promote_types(self._buffer.dtype, torch.float32)
        total = self._received.view(self._size, -1).to(wide).sum(0)
        mine = (total if self._before else total / self._size).to(self._wire.dtype)
        work = dist.all_gather(list(self._wire.chunk(self._size)), mine, group=self._group, async_op=True)
        assert work is not None
        self._gathered = work.get_future()
        self._gathered.add_done_callback(lambda _: self._ended.set_result(None))

    def _outcome(self, _: torch.futures.Future[Any]) -> torch.Tensor:
        self._gathered.value()  # raises what the gathering failed with
        self._buffer.copy_(self._wire[: self._buffer.numel()])
        return self._buffer
