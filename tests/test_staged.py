"""The order of copies, computations and communication around a GPU's memory, on a device that does its work late."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed as dist

from hpccomm.backends.base import Backend, LibraryCall, Operation
from hpccomm.backends.c10d import HashStore, Op, ReduceOp
from hpccomm.backends.combine import REDUCTIONS
from hpccomm.backends.context import Context
from hpccomm.backends.lane import Lane
from hpccomm.backends.runner import Runner
from hpccomm.backends.staged import StagedBackend
from hpccomm.backends.support import Support
from hpccomm.errors import BackendError
from hpccomm.expression import parse
from hpccomm.topology import NodeIdentity, resolve
from hpccomm.watch.flight import GroupLog
from recording import RecordingDevice

ELEMENTS, PIECE = 10, 16
PIECES = 3
"""Of 4, 4 and 2 elements of four bytes."""


class Doubling(Backend):
    """A backend of one rank that doubles what it reduces in the host's memory, and waits before and after."""

    support = Support(frozenset({"cpu"}), REDUCTIONS, "", "")

    def __init__(self, device: RecordingDevice) -> None:
        topology = resolve(0, [NodeIdentity("host", "boot", None, None, None)])
        super().__init__(Context(topology, HashStore(), None, torch.device("cpu"), "127.0.0.1", 5.0))
        self.device = device
        self.sent: list[torch.Tensor] = []

    def _run(self, name: str, action: Callable[[], object]) -> Operation:
        self.device.told.append(f"begin {name}")
        yield "others"
        action()
        self.device.told.append(f"end {name}")

    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        return self._run("all_reduce", lambda: buffer.mul_(2))

    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        return self._run("broadcast", lambda: None)

    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        return self._run("reduce_scatter", lambda: output.copy_(source.view_as(output) * 2))

    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        return self._run("all_gather", lambda: output.copy_(source.view_as(output)))

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        self.sent.append(buffer.clone())  # as MPI reads it when it is called
        yield "others"

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        return self._run("recv", lambda: buffer.fill_(tag))

    def barrier(self) -> Operation:
        return self._run("barrier", lambda: None)


@pytest.fixture
def device() -> RecordingDevice:
    return RecordingDevice()


@pytest.fixture
def runner(device: RecordingDevice) -> Runner:
    backend = StagedBackend(Doubling(device), device, piece_bytes=PIECE)
    return Runner(backend, GroupLog("test", [0], 0, "doubling"), asked=parse("gloo"), lane=Lane(device))


def values(device: RecordingDevice) -> tuple[torch.Tensor, torch.Tensor]:
    """Give a tensor that the caller's stream is yet to fill, and what it will hold."""
    tensor, filled = device.tensor(torch.zeros(ELEMENTS)), torch.arange(1.0, ELEMENTS + 1)
    device.compute("fill", lambda: tensor.copy_(filled))
    return tensor, filled


def is_async(asked: bool) -> dist.AllreduceOptions:
    options = dist.AllreduceOptions()
    options.asyncOp = asked
    return options


def test_pieces_come_down_are_reduced_and_go_up_at_once(device: RecordingDevice, runner: Runner) -> None:
    tensor, filled = values(device)
    device.held = runner.backend._up  # type: ignore[attr-defined]
    runner.run("all_reduce", runner.door.all_reduce(tensor, ReduceOp.SUM), [tensor], is_async(False))
    assert "do up" not in device.told, "the host waited for a copy up"
    device.held = None
    seen: list[float] = []
    device.compute("read", lambda: seen.extend(tensor.tolist()))
    device.finish()
    assert seen == (filled * 2).tolist(), "the caller's next computation did not wait"
    told, places = device.told, {}
    for what in ("queue down", "do down", "begin all_reduce", "end all_reduce", "queue up", "do up"):
        places[what] = [place for place, word in enumerate(told) if word == what]
        assert len(places[what]) == PIECES, what
    assert told.index("do fill") < places["do down"][0]
    for piece in range(PIECES):
        assert places["do down"][piece] < places["begin all_reduce"][piece]
        assert places["end all_reduce"][piece] < places["queue up"][piece]
    for piece in range(PIECES - 1):  # the next one is under way before this one is reduced
        assert places["queue down"][piece + 1] < places["begin all_reduce"][piece]


@pytest.mark.parametrize("collective", ("broadcast", "reduce", "reduce_scatter", "all_gather"))
def test_other_collectives_wait_for_the_input_and_are_waited_for(
    device: RecordingDevice, runner: Runner, collective: str
) -> None:
    tensor, filled = values(device)
    output = device.tensor(torch.zeros(ELEMENTS))
    operation, result, factor = {
        "broadcast": lambda: (runner.door.broadcast(tensor, 0), tensor, 1),
        "reduce": lambda: (runner.door.reduce(tensor, ReduceOp.SUM, 0), tensor, 2),
        "reduce_scatter": lambda: (runner.door.reduce_scatter(output, [tensor], ReduceOp.SUM), output, 2),
        "all_gather": lambda: (runner.door.all_gather([output], tensor), output, 1),
    }[collective]()
    runner.run(collective, operation, [result], is_async(False))
    seen: list[float] = []
    device.compute("read", lambda: seen.extend(result.tolist()))
    device.finish()
    assert seen == (filled * factor).tolist()


def test_a_wait_orders_streams_and_does_not_hold_the_host(device: RecordingDevice, runner: Runner) -> None:
    tensor, filled = values(device)
    work = runner.run("all_reduce", runner.door.all_reduce(tensor, ReduceOp.SUM), [tensor], is_async(True))
    assert device.told.count("keep on stream3") == 1, "the allocator must know of the lane"
    work.wait()
    assert "do up" not in device.told[-1], "the last copy is still queued"
    assert not work.is_completed()
    seen: list[float] = []
    device.compute("read", lambda: seen.extend(tensor.tolist()))
    future = work.get_future()
    device.finish()
    assert seen == (filled * 2).tolist()
    assert work.is_completed() and work.is_success() and future.wait() == [tensor]


def test_what_is_queued_is_watched_until_the_device_is_past_it(device: RecordingDevice, runner: Runner) -> None:
    tensor, _ = values(device)
    runner.run("all_reduce", runner.door.all_reduce(tensor, ReduceOp.SUM), [tensor], is_async(False))
    (entry,) = runner.log.waiting()
    assert (entry.waiting_for, entry.in_library, entry.state) == ("the GPU", True, "waiting")
    assert entry.deadline_s is not None
    device.finish()
    assert runner.log.waiting() == []
    assert entry.state == "done"


def test_messages_keep_their_order_whichever_is_stepped_first(device: RecordingDevice, runner: Runner) -> None:
    pending = []
    for number in (1.0, 2.0, 3.0):
        tensor = device.tensor(torch.zeros(2))
        device.compute("fill", lambda tensor=tensor, number=number: tensor.fill_(number))
        pending.append(runner.door.send(tensor, 0, 0))
        next(pending[-1])
    for _ in range(50):  # the device is long past its copy
        next(pending[-1])
    for operation in pending:
        list(operation)
    inner = runner.backend._inner  # type: ignore[attr-defined]
    assert [int(one[0]) for one in inner.sent] == [1, 2, 3]


def test_the_hosts_tensors_pass_untouched(device: RecordingDevice, runner: Runner) -> None:
    tensor = torch.ones(3)
    runner.run("all_reduce", runner.door.all_reduce(tensor, ReduceOp.SUM), [tensor], is_async(False))
    assert tensor.tolist() == [2.0, 2.0, 2.0]
    assert device.told == ["begin all_reduce", "end all_reduce"]


def test_a_failure_reaches_the_caller_and_the_future(device: RecordingDevice, runner: Runner) -> None:
    def fail(_: float) -> None:
        raise ValueError("no more")

    def failing(buffer: torch.Tensor, op: Op) -> Operation:
        yield LibraryCall(fail, "a call")

    runner.backend._inner.all_reduce = failing  # type: ignore[attr-defined]
    tensor, _ = values(device)
    work = runner.run("all_reduce", runner.door.all_reduce(tensor, ReduceOp.SUM), [tensor], is_async(True))
    with pytest.raises(BackendError, match="no more"):
        work.wait()
    assert work.is_completed() and not work.is_success()
    with pytest.raises(RuntimeError, match="no more"):
        work.get_future().wait()
