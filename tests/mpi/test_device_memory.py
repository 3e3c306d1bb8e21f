"""A GPU's tensors over MPI, staged and by their addresses, on a device in host memory that does its work late.

MPI really sends these addresses: whatever it read or wrote before the device has come to it would come out wrong.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.distributed import ReduceOp
from worlds import COMM, world

from hpccomm.algorithms import ALGORITHMS
from hpccomm.backends.base import Operation
from hpccomm.backends.batch import Message, post
from hpccomm.backends.cuda_aware import ask
from hpccomm.backends.execute import execute
from hpccomm.backends.lane import Lane
from hpccomm.backends.mpi import MpiBackend
from hpccomm.backends.runner import Runner
from hpccomm.backends.staged import StagedBackend
from hpccomm.expression import parse
from hpccomm.watch.flight import GroupLog
from recording import RecordingDevice

pytestmark = [pytest.mark.mpi, pytest.mark.skipif(COMM.size > 3, reason="nothing new with more ranks")]

RANK, SIZE, ELEMENTS = COMM.rank, COMM.size, 12
LARGE = 300_000  # elements of a message that waits for its receiver
LEFT, RIGHT = (RANK - 1) % SIZE, (RANK + 1) % SIZE


class Seat:
    """A runner on a device."""

    def __init__(self, runner: Runner, device: RecordingDevice, lane: Lane) -> None:
        self.runner, self.device, self.lane, self.door = runner, device, lane, runner.door

    def filled(self, rank: int = RANK) -> torch.Tensor:
        """Give a tensor that the caller's stream is yet to fill with a rank's values."""
        tensor = self.device.tensor(torch.full((ELEMENTS,), -1.0))
        self.device.compute("fill", lambda: tensor.copy_(values(rank)))
        return tensor

    def empty(self, count: int = ELEMENTS) -> torch.Tensor:
        return self.device.tensor(torch.full((count,), -1.0))

    def run(self, operation: Operation, result: torch.Tensor) -> torch.Tensor:
        """Run a collective, and give what the caller's next computation reads."""
        self.runner.run("test", operation, [result], Synchronous())
        seen: list[torch.Tensor] = []
        self.device.compute("read", lambda: seen.append(result.clone()))
        self.device.finish()
        return seen[0]


class Synchronous:
    asyncOp = False


def values(rank: int) -> torch.Tensor:
    return torch.arange(ELEMENTS) + 100.0 * rank


def total() -> torch.Tensor:
    return torch.stack([values(rank) for rank in range(SIZE)]).sum(0)


@pytest.fixture(scope="module", params=("staged", "direct"))
def seat(request: pytest.FixtureRequest) -> Iterator[Seat]:
    device = RecordingDevice()
    with world("A" * SIZE, "mpi4py") as made:
        whole = made.group._runner.backend  # type: ignore[attr-defined]
        direct = MpiBackend(whole.context.child("direct"), device)
        backend = direct if request.param == "direct" else StagedBackend(whole, device, piece_bytes=16)
        log = GroupLog("device", range(SIZE), RANK, request.param)
        lane = Lane(device)
        yield Seat(Runner(backend, log, asked=parse("mpi4py"), lane=lane), device, lane)
        direct.close()


COLLECTIVES: dict[str, Callable[[Seat], tuple[torch.Tensor, torch.Tensor]]] = {}


def collective(function: Callable[[Seat], tuple[torch.Tensor, torch.Tensor]]) -> None:
    COLLECTIVES[function.__name__] = function


@collective
def all_reduce(seat: Seat) -> tuple[torch.Tensor, torch.Tensor]:
    tensor = seat.filled()
    return seat.run(seat.door.all_reduce(tensor, ReduceOp.SUM), tensor), total()


@collective
def reduce(seat: Seat) -> tuple[torch.Tensor, torch.Tensor]:
    """Past the front door, which copies what others may overwrite: this device computes that too early."""
    tensor, root = seat.filled(), SIZE - 1
    operation = seat.lane.carry([tensor], lambda: seat.runner.backend.reduce(tensor, ReduceOp.SUM, root))
    result = seat.run(operation, tensor)
    return (result, total()) if root == RANK else (result, result)


@collective
def broadcast(seat: Seat) -> tuple[torch.Tensor, torch.Tensor]:
    tensor = seat.filled()
    return seat.run(seat.door.broadcast(tensor, SIZE - 1), tensor), values(SIZE - 1)


@collective
def all_gather(seat: Seat) -> tuple[torch.Tensor, torch.Tensor]:
    output = seat.empty(SIZE * ELEMENTS)
    expected = torch.cat([values(rank) for rank in range(SIZE)])
    return seat.run(seat.door.all_gather([output], seat.filled()), output), expected


@collective
def reduce_scatter(seat: Seat) -> tuple[torch.Tensor, torch.Tensor]:
    output, share = seat.empty(ELEMENTS // SIZE), slice(RANK * (ELEMENTS // SIZE), (RANK + 1) * (ELEMENTS // SIZE))
    return seat.run(seat.door.reduce_scatter(output, [seat.filled()], ReduceOp.SUM), output), total()[share]


@pytest.mark.parametrize("name", COLLECTIVES)
def test_results_are_those_of_what_the_device_computed(seat: Seat, name: str) -> None:
    for _ in range(2):  # the second one finds memory and streams used
        found, expected = COLLECTIVES[name](seat)
        assert torch.equal(found, expected)


def test_messages_arrive_in_order_from_whatever_is_computed_last(seat: Seat) -> None:
    received = [seat.empty(), seat.empty()]
    works = [seat.runner.post("recv", seat.door.recv(tensor, LEFT, 0), [tensor], LEFT, 0) for tensor in received]
    for tensor in (seat.filled(RANK), seat.filled(RANK + 1)):
        works.append(seat.runner.post("send", seat.door.send(tensor, RIGHT, 0), [tensor], RIGHT, 0))
    for work in reversed(works):
        work.wait()
    seat.device.finish()
    assert [torch.equal(tensor, values(LEFT + place)) for place, tensor in enumerate(received)] == [True, True]


def test_a_batch_of_messages_begins_whole(seat: Seat) -> None:
    received, sent = seat.empty(LARGE), seat.device.tensor(torch.zeros(LARGE))
    seat.device.compute("fill", lambda: sent.fill_(RANK))
    messages = [
        Message("send", seat.door.send(sent, RIGHT, 0), [sent], RIGHT, 0),
        Message("recv", seat.door.recv(received, LEFT, 0), [received], LEFT, 0),
    ]
    post(seat.runner, messages).wait()
    seat.device.finish()
    assert set(received.tolist()) == {float(LEFT)}
    assert not seat.runner.log.exchanges


@pytest.mark.parametrize("name", ("ring", "pairwise"))
def test_schedules_over_messages_that_wait_for_the_device(seat: Seat, name: str) -> None:
    """Such as begin with a send: the device does torch's additions at once, be its memory filled or not."""
    if isinstance(seat.runner.backend, StagedBackend):
        pytest.skip("schedules over staged messages are staged as a whole")
    schedule = ALGORITHMS[name].all_reduce
    assert schedule is not None
    tensor = seat.device.tensor(torch.zeros(LARGE))
    seat.device.compute("fill", lambda: tensor.fill_(RANK + 1))
    steps = schedule(RANK, SIZE, LARGE)
    operation = seat.lane.carry([tensor], lambda: execute(steps, seat.runner.backend, tensor, ReduceOp.SUM))
    assert set(seat.run(operation, tensor).tolist()) == {SIZE * (SIZE + 1) / 2}


@pytest.mark.skipif(COMM.size != 2, reason="once is enough")
def test_the_probe_runs_beside_a_rank_and_knows_that_the_host_has_memory() -> None:
    """As the only rank of an MPI of its own, with the calls on host memory, which every library takes."""
    found = ask([sys.executable, "-m", "hpccomm.backends.cuda_probe", "cpu"], os.environ) if RANK == 0 else None
    found = COMM.bcast(found)
    assert found is not None
    assert found.answer == "yes", found.reason
