"""Small all-reduces and barriers as MPI's persistent collectives: prepared once, started often.

Starting one costs less than posting a non-blocking collective anew. An all-reduce is prepared for memory of its own,
and elements are copied in and out: the addresses of users' tensors come and go, and what MPI has been given must stay.
All ranks prepare the same ones in the same order, which follows from the order of the collectives alone. That MPI
prepares without waiting for other ranks, as the libraries do, is relied on: a rank that is missing is noticed after.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from hpccomm.backends.base import Operation
from hpccomm.backends.c10d import Op

if TYPE_CHECKING:
    from mpi4py import MPI

_ARRIVAL, _TURN = "all ranks to arrive", "the one before it"
KEPT = 64
"""All-reduces that one communicator keeps prepared."""


# All that are not freed: what MPI has been given must not go, even if a backend is dropped without being closed
_STANDING: set[Prepared] = set()


class _Persistent:
    """A persistent collective, for one operation at a time.

    Attributes:
        busy: Whether it is under way, or was given up.
    """

    __slots__ = ("_request", "busy")

    def __init__(self, request: MPI.Prequest) -> None:
        self._request, self.busy = request, False

    def free(self) -> None:
        """Free it; it must not be busy."""
        self._request.Free()


class PreparedBarrier(_Persistent):
    """A barrier."""

    __slots__ = ()

    def run(self) -> Operation:
        """Start it and poll."""
        while self.busy:
            yield _TURN
        self.busy = True
        self._request.Start()
        while not self._request.Test():
            yield _ARRIVAL
        self.busy = False


class PreparedReduction(_Persistent):
    """An all-reduce of so many elements of one dtype by one operator.

    Args:
        request: The all-reduce, in place.
        memory: What it reduces.
        at: MPI.buffer.fromaddress.

    Attributes:
        waits_for: What it waits for, in words.
    """

    waits_for = _ARRIVAL
    __slots__ = ("_at", "_memory", "_nbytes", "_users")

    def __init__(self, request: MPI.Prequest, memory: memoryview, at: Any) -> None:
        super().__init__(request)
        self._memory, self._nbytes, self._at = memory, memory.nbytes, at
        self._users: Any = None

    def attempt(self, tensor: torch.Tensor, tries: int) -> bool:
        """Start it for a dense tensor of host memory, poll so many times, and tell whether the result is in place."""
        users, request = self._at(tensor.data_ptr(), self._nbytes), self._request
        self.busy = True
        self._memory[:] = users
        request.Start()
        while not request.Test():
            tries -= 1
            if tries <= 0:
                self._users = users
                return False
        users[:] = self._memory
        self.busy = False
        return True

    def rest(self) -> Operation:
        """Go on after an attempt that has not ended; the tensor must still be there."""
        while not self._request.Test():
            yield self.waits_for
        self._users[:] = self._memory
        self._users, self.busy = None, False

    def run(self, tensor: torch.Tensor) -> Operation:
        """Start it for a dense tensor of host memory, and poll."""
        while self.busy:
            yield _TURN
        if not self.attempt(tensor, 1):
            yield self.waits_for
            yield from self.rest()


class Prepared:
    """The prepared collectives of one communicator.

    Attributes:
        barrier: The barrier.
        reductions: The all-reduces, by dtype, number of the operator, and count.
    """

    def __init__(self, communicator: MPI.Intracomm) -> None:
        from mpi4py import MPI

        self._communicator, self._at, self._in_place = communicator, MPI.buffer.fromaddress, MPI.IN_PLACE
        self.barrier = PreparedBarrier(communicator.Barrier_init())
        self.reductions: dict[tuple[torch.dtype, int, int], PreparedReduction] = {}
        self._given_up: list[PreparedReduction] = []
        _STANDING.add(self)

    def reduction(self, tensor: torch.Tensor, op: Op, kind: MPI.Datatype, operator: MPI.Op) -> PreparedReduction:
        """Give the all-reduce of tensors of this one's count and dtype, prepared now or before; collective.

        Args:
            tensor: A tensor.
            op: torch's operator.
            kind: MPI's type of an element.
            operator: MPI's operator.
        """
        key = tensor.dtype, hash(op), tensor.numel()
        found = self.reductions.get(key)
        if found is None:
            if len(self.reductions) == KEPT:
                self._drop(next(iter(self.reductions)))
            memory = memoryview(bytearray(tensor.numel() * tensor.element_size()))
            request = self._communicator.Allreduce_init(self._in_place, [memory, tensor.numel(), kind], operator)
            found = self.reductions[key] = PreparedReduction(request, memory, self._at)
        return found

    def _drop(self, key: tuple[torch.dtype, int, int]) -> None:
        dropped = self.reductions.pop(key)
        if dropped.busy:  # given up, so that MPI may still touch its memory
            self._given_up.append(dropped)
        else:
            dropped.free()

    @property
    def busy(self) -> bool:
        """Whether one of them is under way, or was given up."""
        return bool(self._given_up) or self.barrier.busy or any(one.busy for one in self.reductions.values())

    def free(self) -> None:
        """Free them all; none may be busy."""
        self.barrier.free()
        for one in self.reductions.values():
            one.free()
        self.reductions.clear()
        _STANDING.discard(self)


def prepare(communicator: MPI.Intracomm) -> Prepared | None:
    """Prepare a communicator's collectives, or give None where the library has none to prepare; collective."""
    from mpi4py import MPI

    try:
        return Prepared(communicator)
    except NotImplementedError:  # mpi4py was built for an MPI that does not know them
        return None
    except MPI.Exception as error:
        if error.Get_error_class() not in (MPI.ERR_UNSUPPORTED_OPERATION, MPI.ERR_OTHER):
            raise
        return None
