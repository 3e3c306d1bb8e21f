"""Leaf `gloo`: torch's Gloo over TCP, on an address that every other host reaches.

Gloo works in threads of its own; operations here are started and polled. It is built directly, never through
`new_group`, on the store that the context gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch

from hpccomm.backends.base import Backend, LibraryCall, Operation, bad_option, offsets
from hpccomm.backends.c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BroadcastOptions,
    GatherOptions,
    Op,
    ProcessGroupGloo,
    ReduceOp,
    ReduceOptions,
    ScatterOptions,
)
from hpccomm.backends.context import Context
from hpccomm.backends.layout import as_bytes
from hpccomm.backends.support import ARITHMETIC, BITWISE, HALVES, Support
from hpccomm.backends.uneven import gather_padded, reduce_whole
from hpccomm.errors import BackendError

_OF_GLOO = timedelta(days=7)
_CONNECT_S = 30.0  # at least, to connect on a busy machine; a rank that dies meanwhile holds the others up that long
_NEVER_SENT = 2**31 - 7  # a tag
_INTEGERS = (torch.int8, torch.uint8, torch.int32, torch.int64)


class GlooBackend(Backend):
    """Gloo's collectives.

    Args:
        context: The group.
        threads: Gloo's worker threads for this group.
        accumulate: ``native`` lets Gloo add 16-bit floats as they are (rounded at every hop, half the bytes);
            ``float32`` sums them in float32 and rounds once.
    """

    support = Support(
        devices=frozenset({"cpu"}),
        reductions={
            **dict.fromkeys((torch.float64, torch.float32, *HALVES), ARITHMETIC),
            **dict.fromkeys(_INTEGERS, ARITHMETIC | BITWISE),
        },
        rounding="at every hop; 16-bit floats too, unless accumulate=float32",
        deadline="polled",
    )

    def __init__(self, context: Context, *, threads: int = 2, accumulate: str = "native") -> None:
        super().__init__(context)
        self.overlaps = True
        if accumulate not in ("native", "float32"):
            raise bad_option("gloo", "accumulate", accumulate, "native or float32")
        if not isinstance(threads, int) or threads < 1:
            raise bad_option("gloo", "threads", threads, "a number from 1")
        if accumulate == "float32":
            self.support = self.support.without(HALVES)
        self._group = _process_group(context, threads)
        self._given_up: list[tuple[Any, ...]] = []

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Call Gloo's allreduce."""
        options = AllreduceOptions()
        options.reduceOp = ReduceOp(op)
        yield from self._complete(self._group.allreduce([buffer], options))

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Call Gloo's broadcast."""
        options = BroadcastOptions()
        options.rootRank = root
        yield from self._complete(self._group.broadcast([as_bytes(buffer)], options))

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce everything and keep the own block, as Gloo's own reduce-scatter does (only inside `wait`)."""
        counts = counts if counts is not None else [output.numel()] * self.size
        start = offsets(counts)[self.rank]
        return reduce_whole(lambda whole: self.all_reduce(whole, op), output, source, start)

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Call Gloo's allgather; unequal shares travel padded to the largest."""
        if counts is None:
            return self._gather_equal(output, source)
        return gather_padded(self._gather_equal, output, source, counts)

    def _gather_equal(self, output: torch.Tensor, source: torch.Tensor) -> Operation:
        work = self._group._allgather_base(as_bytes(output), as_bytes(source), AllgatherOptions())
        yield from self._complete(work)

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Call Gloo's reduce."""
        options = ReduceOptions()
        options.reduceOp, options.rootRank = ReduceOp(op), root
        yield from self._complete(self._group.reduce([buffer], options))

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Call Gloo's gather."""
        options = GatherOptions()
        options.rootRank = root
        blocks = [] if output is None else [list(torch.split(as_bytes(output), source.numel() * source.element_size()))]
        yield from self._complete(self._group.gather(blocks, [as_bytes(source)], options))

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Call Gloo's scatter."""
        options = ScatterOptions()
        options.rootRank = root
        blocks = [] if source is None else [list(torch.split(as_bytes(source), output.numel() * output.element_size()))]
        yield from self._complete(self._group.scatter([as_bytes(output)], blocks, options))

    def barrier(self) -> Operation:
        """Call Gloo's barrier."""
        yield from self._complete(self._group.barrier())

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Call Gloo's send."""
        message = _message(buffer)
        return self._complete_inside(self._group.send([message], dest, tag), f"rank {dest} to take it", message)

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Call Gloo's recv."""
        message = _message(buffer)
        return self._complete_inside(self._group.recv([message], source, tag), f"a message of rank {source}", message)

    def recv_any(self, buffer: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Call Gloo's receive from any source."""
        message = _message(buffer)
        work = self._group.recv_anysource([message], tag)
        yield from self._complete_inside(work, "a message of any rank", message)
        found.append(work._source_rank())

    def close(self) -> None:
        """Free the group; what was given up is ended first, since Gloo's threads would wait for it."""
        if self._given_up:
            self._break_off()
            self._given_up.clear()
        del self._group
        super().close()

    def _complete(self, work: Any) -> Operation:
        try:
            while not work.is_completed():
                yield "Gloo"
        except BaseException:  # given up, or interrupted in here
            self._given_up.append((work,))
            raise
        work.wait()

    def _complete_inside(self, work: Any, what: str, message: torch.Tensor) -> Operation:
        """Wait for a send or receive, which Gloo completes in a blocking `wait` alone.

        One that is given up is kept, with its memory: Gloo's thread would poll for ever, without a pause, a connection
        with a message on it that belongs to no receive any more.
        """

        def wait(left_s: float) -> None:
            try:
                work.wait(timedelta(seconds=left_s))
            except RuntimeError:
                self._given_up.append((work, message))
                raise

        try:
            yield LibraryCall(wait, what, bounded=True)
        except GeneratorExit:  # the call may go on
            self._given_up.append((work, message))
            raise

    def _break_off(self) -> None:
        """Close the connections: Gloo does so where a receive passes its time."""
        if self.size > 1:
            with suppress(RuntimeError):
                message = torch.empty(1, dtype=torch.uint8, device="cpu")
                self._group.recv([message], (self.rank + 1) % self.size, _NEVER_SENT).wait(timedelta(milliseconds=1))


def _process_group(context: Context, threads: int) -> Any:
    options = ProcessGroupGloo._Options()
    options._threads = threads
    options._timeout = timedelta(seconds=max(context.timeout_s, _CONNECT_S))
    try:
        options._devices = [ProcessGroupGloo.create_device(hostname=context.address, lazy_init=False)]
        topology = context.topology
        group = ProcessGroupGloo(context.store, topology.rank, topology.world_size, options)
    except RuntimeError as error:
        raise BackendError(
            f"build backend gloo on {context.address}",
            found=str(error).splitlines()[0],
            remedy="check that all hosts reach this address; HPCCOMM_INTERFACE names another interface",
        ) from error
    group._set_default_timeout(_OF_GLOO)  # ours are held by whoever steps, and may change
    return group


def _message(buffer: torch.Tensor) -> torch.Tensor:
    """Give a buffer's bytes, or one byte for none: Gloo takes no empty messages."""
    return as_bytes(buffer) if buffer.numel() else torch.zeros(1, dtype=torch.uint8, device="cpu")
