"""What NCCL does alike through torch and through cupy: what it reduces, messages, unequal shares, the barrier."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence

import torch

from hpccomm.backends.base import BLOCKS_TAG, SCHEDULE_TAG, Backend, Operation, bad_option, offsets
from hpccomm.backends.c10d import Op, ReduceOp
from hpccomm.backends.layout import as_bytes
from hpccomm.backends.support import ARITHMETIC, HALVES, Support
from hpccomm.backends.uneven import gather_padded, reduce_whole
from hpccomm.errors import UnsupportedError

NCCL_SUPPORT = Support(
    devices=frozenset({"cuda"}),
    reductions=dict.fromkeys(
        (torch.float64, torch.float32, *HALVES, torch.int8, torch.uint8, torch.int32, torch.int64), ARITHMETIC
    ),
    rounding="at every hop; 16-bit floats too, unless accumulate=float32",
    deadline="a watchdog on the GPU's events, which ends the job",
)

Message = tuple[str, torch.Tensor, int]
"""``send`` or ``recv``, the bytes, and the rank at the other end."""

Wait = Callable[[], object]
"""Has the stream that this thread works in wait for what was queued."""


class _Group:
    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.wait: Wait | None = None


class Messages:
    """Sends and receives in groups, without which those in opposite directions would wait for each other.

    What is begun before anything of it is stepped again is one group.

    Args:
        queue: Queues the messages of a group.

    Attributes:
        lock: Held around every call of NCCL on a communicator, which takes one at a time.
    """

    def __init__(self, queue: Callable[[Sequence[Message]], Wait]) -> None:
        self._queue = queue
        self._open = _Group()
        self.lock = threading.Lock()

    def exchange(self, move: str, buffer: torch.Tensor, peer: int) -> Operation:
        """Queue a message together with those of its group."""
        with self.lock:
            group = self._open
            group.messages.append((move, as_bytes(buffer), peer))
        yield "the messages of its group"
        with self.lock:
            if group.wait is None:
                self._open = _Group()
                group.wait = self._queue(group.messages)
        group.wait()


def accumulating(name: str, accumulate: str) -> Support:
    """Give what NCCL reduces itself, with or without 16-bit floats.

    Raises:
        OptionError: `accumulate` is neither ``native`` nor ``float32``.
    """
    if accumulate not in ("native", "float32"):
        raise bad_option(name, "accumulate", accumulate, "native or float32")
    return NCCL_SUPPORT if accumulate == "native" else NCCL_SUPPORT.without(HALVES)


def _refuse_tag(backend: Backend, tag: int) -> None:
    """Refuse users' tags: NCCL matches messages between two ranks in the order in which they are queued."""
    if tag not in (0, SCHEDULE_TAG, BLOCKS_TAG):
        raise UnsupportedError(
            f"send or receive with tag {tag} over {backend.expression}",
            found="NCCL has no tags",
            remedy="leave the tag out, and receive in the order of the sends",
        )


class NcclMessaging(Backend):
    """What the two leaves over NCCL have in common; `_messages` is set by whoever derives from it."""

    _messages: Messages

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Queue ncclReduceScatter; for unequal shares, ncclAllReduce of everything."""
        if counts is not None:
            start = offsets(counts)[self.rank]
            return reduce_whole(lambda whole: self.all_reduce(whole, op), output, source, start)
        return self._reduce_scatter_equal(output, source, op)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Queue ncclAllGather; unequal shares travel padded to the largest."""
        if counts is None:
            return self._gather_equal(output, source)
        return gather_padded(self._gather_equal, output, source, counts)

    @abstractmethod
    def _reduce_scatter_equal(self, output: torch.Tensor, source: torch.Tensor, op: Op) -> Operation:
        """Queue ncclReduceScatter."""

    @abstractmethod
    def _gather_equal(self, output: torch.Tensor, source: torch.Tensor) -> Operation:
        """Queue ncclAllGather."""

    def barrier(self) -> Operation:
        """Reduce one element on the GPU, and wait on the host until that has come past it."""
        yield from self.all_reduce(torch.zeros(1, dtype=torch.int32, device=self.context.device), ReduceOp.SUM)
        event = torch.cuda.current_stream().record_event()
        while not event.query():
            yield "the GPU"

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Queue ncclSend, grouped with what is begun before anything of it is waited for."""
        _refuse_tag(self, tag)
        return self._messages.exchange("send", buffer, dest)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Queue ncclRecv, grouped likewise."""
        _refuse_tag(self, tag)
        return self._messages.exchange("recv", buffer, source)
