"""What a backend is: generators that move and reduce dense tensors among the ranks of one group.

A leaf or combinator is one class in one file beside this one, plus one line in `names`. It sees only what the
front door lets through: dense tensors on its devices, dtypes and operators of its own support table, counts within
`max_count`, roots and peers as ranks of the group. It knows neither torch's process groups nor deadlines.

Every operation is a generator: it yields a word for what it waits for whenever it cannot go on, or a `LibraryCall`
that must be made before it goes on, and ends when the result is in place. Whoever steps it holds the deadline and
decides how to wait and in which thread to call. An operation that fails raises; one that is given up is closed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch

from hpccomm.backends.c10d import Op
from hpccomm.backends.context import Beside, Context
from hpccomm.backends.support import Support
from hpccomm.errors import OptionError, UnsupportedError


@dataclass(slots=True)
class LibraryCall:
    """A call that blocks inside a library.

    Attributes:
        call: Makes it; takes the seconds that are left to the operation.
        what: What is called, in words.
        bounded: Whether it keeps to that time by itself.
    """

    call: Callable[[float], object]
    what: str
    bounded: bool = False


Operation = Generator[str | LibraryCall, None, None]

PREPARES = "the GPU, so that it can be posted"
"""Yielded, as this very object, by an operation that is not posted yet; whoever begins several waits for that first."""

SCHEDULE_TAG, BLOCKS_TAG = 32767, 32766
"""Tags that no user's message may have: those of schedules' messages and of all_to_all's; all MPIs grant them."""

LARGEST_TAG = BLOCKS_TAG - 1
"""The largest tag of a user's message, so that it is granted everywhere."""

MAX_COUNT = 2**31 - 1
"""Elements of one call to a library that counts in C integers (bytes, where it only moves)."""


def resumed(waits: str | LibraryCall, operation: Operation) -> Operation:
    """Give an operation that has been stepped once as one that yields what it waited for again."""
    yield waits
    yield from operation


def posted(operation: Operation) -> Generator[str | LibraryCall, None, Operation]:
    """Step an operation until it is posted, and give what is left of it."""
    waits = next(operation, None)
    while waits is PREPARES:
        yield waits
        waits = next(operation, None)
    return operation if waits is None else resumed(waits, operation)


class Startable(Protocol):
    """An all-reduce of so many elements of one dtype by one operator, ready to be started, one at a time.

    Attributes:
        busy: Whether it is under way, or was given up.
        waits_for: What it waits for, in words.
    """

    busy: bool
    waits_for: str

    def attempt(self, tensor: torch.Tensor, tries: int) -> bool:
        """Start it for a dense tensor of host memory, poll so many times, and tell whether the result is in place."""

    def rest(self) -> Operation:
        """Go on after an attempt that has not ended."""


class Backend(ABC):
    """Moves and reduces dense tensors for one group.

    Tensors are dense (contiguous, of any shape), on one of ``support.devices``; reductions get a dtype and operator
    of ``support.reductions``, movements any dtype. ``counts`` gives elements a rank, None meaning equal shares.

    Attributes:
        support: The backend's own abilities.
        max_count: The most elements of a reduction, or bytes of a movement, in one call; the front door chunks.
        expression: The backend as text, set by whoever builds it.
        checks: Whether the ranks compare what they call before every collective.
        is_urgent: Whether its work on a GPU goes before that of others.
        overlaps: Whether several all-reduces may be under way at once, begun in one order on all ranks.
        notes: What its users should know of how it is built, such as a slower way that had to be taken.
        fell_back: Each change from one backend to another so far.
        prepared: Small all-reduces of host memory that can be started at once, by dtype, number of the operator, and
            count; whoever runs one need not step `all_reduce`.
    """

    support: Support
    max_count: int = MAX_COUNT
    expression: str = ""
    checks: bool = False
    is_urgent: bool = False
    overlaps: bool = False
    notes: Sequence[str] = ()
    fell_back: Sequence[str] = ()
    prepared: Mapping[tuple[torch.dtype, int, int], Startable] = MappingProxyType({})

    def __init__(self, context: Context) -> None:
        self.context = context
        self.rank = context.topology.rank
        self.size = context.topology.world_size
        self._asking: dict[int, deque[object]] = {}

    @abstractmethod
    def all_reduce(self, buffer: torch.Tensor, op: Op) -> Operation:
        """Reduce `buffer` over all ranks, in place."""

    @abstractmethod
    def broadcast(self, buffer: torch.Tensor, root: int) -> Operation:
        """Overwrite `buffer` with that of rank `root`."""

    @abstractmethod
    def reduce_scatter(
        self, output: torch.Tensor, source: torch.Tensor, op: Op, counts: Sequence[int] | None = None
    ) -> Operation:
        """Reduce `source` over all ranks and leave block `rank` of it in `output`."""

    @abstractmethod
    def all_gather(self, output: torch.Tensor, source: torch.Tensor, counts: Sequence[int] | None = None) -> Operation:
        """Put the `source` of every rank, in rank order, into `output`; `source` may be its own place in there."""

    @abstractmethod
    def barrier(self) -> Operation:
        """Wait until every rank has come here."""

    def reduce(self, buffer: torch.Tensor, op: Op, root: int) -> Operation:
        """Reduce `buffer` over all ranks, in place on rank `root`; on the others it may be overwritten."""
        return self.all_reduce(buffer, op)

    def gather(self, output: torch.Tensor | None, source: torch.Tensor, root: int) -> Operation:
        """Put the `source` of every rank, of one size, in rank order into `output` of rank `root`, None elsewhere."""
        whole = source.new_empty(source.numel() * self.size) if output is None else output
        return self.all_gather(whole, source)

    def scatter(self, output: torch.Tensor, source: torch.Tensor | None, root: int) -> Operation:
        """Give every rank its equal block of the `source` of rank `root`, None elsewhere."""
        count = output.numel()
        whole = output.new_empty(count * self.size) if source is None else source
        yield from self.broadcast(whole, root)
        output.view(-1).copy_(whole.view(-1)[self.rank * count : (self.rank + 1) * count])

    def all_to_all(
        self, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
    ) -> Operation:
        """Send block r of `source`, of ``sent[r]`` elements, to rank r, and collect what all ranks send in `output`."""
        return exchange_blocks(self, output.view(-1), source.view(-1), sent, received)

    def send(self, buffer: torch.Tensor, dest: int, tag: int) -> Operation:
        """Send `buffer` to rank `dest`."""
        raise self._lacks("send")

    def recv(self, buffer: torch.Tensor, source: int, tag: int) -> Operation:
        """Receive into `buffer` what rank `source` sent with `tag`."""
        raise self._lacks("recv")

    @property
    def asks_senders(self) -> bool:
        """Whether it learns who has sent before it posts a receive from any rank."""
        return type(self).recv_any is Backend.recv_any

    def recv_any(self, buffer: torch.Tensor, tag: int, found: list[int]) -> Operation:
        """Receive into `buffer` what any rank sent with `tag`, and append that rank to `found`.

        By default the other ranks are asked who has sent; until one has, that costs some datagrams every few ms.
        """
        beside = self.context.beside
        if beside is None:
            raise self._lacks("recv from any source")
        return self._recv_of_sender(buffer, tag, found, beside)

    def _recv_of_sender(self, buffer: torch.Tensor, tag: int, found: list[int], beside: Beside) -> Operation:
        senders, turn = list[int | None](), object()
        line = self._asking.setdefault(tag, deque())
        line.append(turn)
        try:
            while line[0] is not turn:  # messages go to receives in the order in which these were posted
                yield "the receives before it"
            yield LibraryCall(
                lambda left_s: senders.append(beside.find_sender(tag, left_s)), "a message of any rank", bounded=True
            )
            while (sender := senders[0]) is None:
                yield "a group that is dead"  # whoever steps this gives it up
            receiving = yield from posted(self.recv(buffer, sender, tag))
        finally:
            line.remove(turn)
        found.append(sender)
        yield from receiving

    def _lacks(self, collective: str) -> UnsupportedError:
        return UnsupportedError(
            f"{collective} over {self.expression}",
            found="this backend does not offer it",
            remedy="use another backend",
            everywhere=True,
        )

    def close(self) -> None:
        """Free what the backend holds; local, and safe after a failure."""
        self.context.close()


DEADLINES = ("arrival", "strict")
"""How MPI may hold a deadline: until all ranks have arrived, or throughout."""


def check_deadline(name: str, deadline: str) -> None:
    """Refuse a way to hold the deadline that there is not.

    Args:
        name: The backend that has `deadline` as its option.
        deadline: The option's value.

    Raises:
        OptionError: It is none of `DEADLINES`; the same on all ranks.
    """
    if deadline not in DEADLINES:
        raise bad_option(name, "deadline", deadline, " or ".join(DEADLINES))


def bad_option(backend: str, name: str, value: object, wanted: str) -> OptionError:
    """Give the error, the same on all ranks, of an option of a backend that has a value it does not take."""
    return OptionError(
        f"build backend {backend}({name}={value})", found=f"{value!r}", remedy=f"give {wanted}", everywhere=True
    )


def offsets(counts: Sequence[int]) -> list[int]:
    """Give where each rank's block starts, and the total as one entry more.

    >>> offsets([3, 0, 2])
    [0, 3, 3, 5]
    """
    starts = [0]
    for count in counts:
        starts.append(starts[-1] + count)
    return starts


def uneven(counts: Sequence[int]) -> Sequence[int] | None:
    """Give counts as backends take them: None when all shares are equal."""
    return counts if len(set(counts)) > 1 else None


def exchange_blocks(
    backend: Backend, output: torch.Tensor, source: torch.Tensor, sent: Sequence[int], received: Sequence[int]
) -> Operation:
    """Exchange blocks of any sizes by send and recv, all posted at once; both ends cut a block alike."""
    rank, size = backend.rank, backend.size
    limit = max(1, backend.max_count // source.element_size())
    starts, places = offsets(sent), offsets(received)
    output[places[rank] : places[rank + 1]].copy_(source[starts[rank] : starts[rank + 1]])
    posted: list[Operation] = []
    for shift in range(1, size):
        giver, taker = (rank - shift) % size, (rank + shift) % size
        into, out = output[places[giver] : places[giver + 1]], source[starts[taker] : starts[taker + 1]]
        posted += [backend.recv(piece, giver, BLOCKS_TAG) for piece in torch.split(into, limit) if piece.numel()]
        posted += [backend.send(piece, taker, BLOCKS_TAG) for piece in torch.split(out, limit) if piece.numel()]
    yield from together(posted)


def together(operations: Iterable[Operation]) -> Operation:
    """Begin all operations, in order, then end all of them."""
    begun = []
    for operation in operations:
        begun.append((yield from posted(operation)))
    for operation in begun:
        yield from operation


def chained(operations: Iterable[Operation]) -> Operation:
    """Run operations one after the other."""
    for operation in operations:
        yield from operation
