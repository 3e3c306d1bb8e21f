"""All ranks' schedules carried out in one process on symbols, by the rules that the package states.

Each rank runs until it must wait. What it waits for never ceases to be there, so the order in which ranks are run
changes nothing: a deadlock found here is one for every carrier that waits as this one does, and none is missed.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from hpccomm.errors import ScheduleError
from hpccomm.schedule.contracts import Contract
from hpccomm.schedule.faults import Fault, elements, of_ranks
from hpccomm.schedule.memory import UNDEFINED, Memory, Piece, Sums, Value, aligned
from hpccomm.schedule.step import Step


@dataclass(slots=True, eq=False)
class Message:
    """What was posted: the content at that moment, and which ranks' beginning it proves (`heard`, as bits)."""

    source: int
    dest: int
    step: int
    start: int
    stop: int
    pieces: list[Piece]
    heard: int
    received: bool = False


@dataclass(slots=True, eq=False)
class Player:
    """One rank on its way through its schedule.

    Attributes:
        rank: Who it is.
        steps: The schedule's steps to come.
        sends_from: The buffer that is sent from.
        memory: The buffer that is received into; the same but for a separate input.
        number: Number of the current step, from 0.
        step: The current step; None before the first and after the last.
        landed: The current step's message, received but not added yet.
        blocker: What it waits for: a rank to send, or a message of its own to be received.
        pending: Messages sent out of `memory` that may not have been received yet.
        stored: The messages that were stored in `memory`, each with the step's number and place.
        heard: The ranks known to have begun, as bits.
    """

    rank: int
    steps: Iterator[Step]
    sends_from: Memory
    memory: Memory
    number: int = -1
    step: Step | None = None
    landed: Message | None = None
    blocker: int | Message | None = None
    pending: list[Message] = field(default_factory=list)
    stored: list[tuple[int, int, Message]] = field(default_factory=list)
    heard: int = 0

    def unfinished(self, start: int, stop: int) -> Message | None:
        """Give a pending message whose interval overlaps this one."""
        self.pending = [message for message in self.pending if not message.received]
        for sent in self.pending:
            if sent.start < stop and start < sent.stop:
                return sent
        return None

    def where(self) -> str:
        """Write who is at which step."""
        return f"rank {self.rank}, step {self.number}"


class Run:
    """The schedules of all ranks of a contract, to be carried out once by `execute`."""

    def __init__(self, schedule: Callable[..., Iterable[Step]], contract: Contract, separate_input: bool) -> None:
        self.asked = f"verify {contract}"
        self.size = contract.size
        self.sums = Sums(self.size)
        self.players: list[Player] = []
        self._queues: defaultdict[tuple[int, int], deque[Message]] = defaultdict(deque)
        self._ready = list(range(self.size))
        for rank, (arguments, lengths) in enumerate(zip(contract.arguments, contract.lengths, strict=True)):
            length = lengths[0] if separate_input else max(lengths)
            given = Memory(length, contract.held[rank], rank + 1)
            memory = Memory(lengths[1], (0, 0), 0) if separate_input else given
            steps = iter(schedule(rank, self.size, *arguments))
            self.players.append(Player(rank, steps, given, memory, heard=1 << rank))

    def execute(self) -> None:
        """Run all ranks to their ends.

        Raises:
            ScheduleError: A step is wrong, or ranks or messages are left over.
        """
        while self._ready:
            self._advance(self.players[self._ready.pop()])
        blocked = [player for player in self.players if player.step is not None]
        if blocked:
            lines = [self._waiting(player) for player in blocked[:8]]
            more = [f"and {len(blocked) - 8} more"] if len(blocked) > 8 else []
            raise Fault.DEADLOCK.error(self.asked, "; ".join(lines + more))
        left = next((queue[0] for queue in self._queues.values() if queue), None)
        if left is not None:
            text = f"rank {left.source}, step {left.step}: {elements(left.start, left.stop)} for rank {left.dest}"
            raise Fault.UNRECEIVED.error(self.asked, text)

    def _advance(self, player: Player) -> None:
        while True:
            step = player.step
            if step is None:
                step = player.step = next(player.steps, None)
                if step is None:
                    return
                player.number += 1
                self._check(player, step)
                if step.send[0] < step.send[1]:
                    self._post(player, step)
            if step.recv[0] < step.recv[1] and not self._receive(player, step):
                return
            player.step = None

    def _check(self, player: Player, step: Step) -> None:
        dest, source, size = step.dest, step.source, self.size
        sides = ((step.send, dest, player.sends_from.length), (step.recv, source, player.memory.length))
        for (start, stop), peer, length in sides:
            if not 0 <= start <= stop <= length:
                text = f"{player.where()}: {elements(start, stop)} of a buffer of {length}"
                raise Fault.RANGE.error(self.asked, text)
            lonely = peer == player.rank and dest != source
            if not -1 <= peer < size or (peer < 0 and start < stop) or lonely:
                raise Fault.PEER.error(self.asked, f"{player.where()}: {elements(start, stop)} to or from rank {peer}")

    def _post(self, player: Player, step: Step) -> None:
        start, stop = step.send
        pieces = player.sends_from.read(start, stop)
        message = Message(player.rank, step.dest, player.number, start, stop, pieces, player.heard)
        for position, value in pieces:
            if value == UNDEFINED:
                text = f"{player.where()}: sends rank {step.dest} element {position}, which it does not hold yet"
                raise Fault.STALE.error(self.asked, text)
        self._queues[player.rank, step.dest].append(message)
        if player.sends_from is player.memory:
            player.pending.append(message)
        if self.players[step.dest].blocker == player.rank:
            self._wake(self.players[step.dest])

    def _receive(self, player: Player, step: Step) -> bool:
        """Finish a step, or note what it waits for and return False."""
        start, stop = step.recv
        if player.landed is None:
            if not step.reduce and self._must_wait(player, start, stop):
                return False
            queue = self._queues[step.source, player.rank]
            if not queue:
                player.blocker = step.source
                return False
            player.landed = self._take(player, queue.popleft(), stop - start)
        if step.reduce and self._must_wait(player, start, stop):
            return False
        self._keep(player, step, player.landed)
        player.landed = None
        return True

    def _must_wait(self, player: Player, start: int, stop: int) -> bool:
        player.blocker = player.unfinished(start, stop) if player.pending else None
        return player.blocker is not None

    def _take(self, player: Player, message: Message, length: int) -> Message:
        if message.stop - message.start != length:
            sent = f"{message.stop - message.start} elements that rank {message.source} sent at step {message.step}"
            raise Fault.SIZE.error(self.asked, f"{player.where()}: receives {length} elements, but gets {sent}")
        message.received = True
        player.heard |= message.heard
        sender = self.players[message.source]
        if sender.blocker is message:
            self._wake(sender)
        return message

    def _wake(self, player: Player) -> None:
        player.blocker = None
        self._ready.append(player.rank)

    def _keep(self, player: Player, step: Step, message: Message) -> None:
        start, stop = step.recv
        moved = start - message.start
        pieces = message.pieces
        if moved:
            pieces = [(at + moved, (number, shift - moved)) for at, (number, shift) in pieces]
        if step.reduce:
            pieces = self._added(player, message, player.memory.read(start, stop), pieces)
        else:
            player.stored.append((player.number, moved, message))
        player.memory.write(start, stop, pieces)

    def _added(self, player: Player, message: Message, own: list[Piece], others: list[Piece]) -> list[Piece]:
        result: list[Piece] = []
        for at, one, other in aligned(own, others):
            number = self.sums.add(one[0], other[0])
            if not number or one[1] != other[1]:
                raise self._wrong_sum(player, message, at, (one, other))
            result.append((at, (number, one[1])))
        return result

    def _wrong_sum(self, player: Player, message: Message, at: int, operands: tuple[Value, Value]) -> ScheduleError:
        (one, shift), (other, its_shift) = operands
        here, there = self.sums.ranks[one], self.sums.ranks[other]
        of = f"of rank {message.source} (its step {message.step})"
        if not here:
            text = f"{player.where()}: adds to element {at}, which it does not hold yet"
            return Fault.UNDEFINED.error(self.asked, text)
        if not here & there:
            text = f"{player.where()}: adds element {at + its_shift} {of} to element {at + shift}, at element {at}"
            return Fault.MISPLACED.error(self.asked, text)
        origin = at + message.start - (player.step.recv[0] if player.step else 0)
        lost = overwriting(self.players[message.source], origin, message.step)
        if lost and not there >> message.source & 1:
            text = f"rank {message.source}, step {message.step}: sends element {origin}, which its step {lost[0]}"
            return Fault.STALE.error(self.asked, f"{text} overwrote with what rank {lost[2].source} sent")
        text = f"{player.where()}: adds {of_ranks(there)} {of} to {of_ranks(here)}, at element {at}"
        return Fault.DOUBLE_COUNT.error(self.asked, text)

    def _waiting(self, player: Player) -> str:
        blocker = player.blocker
        if isinstance(blocker, Message):
            sent = f"{elements(blocker.start, blocker.stop)} that it sent at step {blocker.step}"
            return f"{player.where()} waits for rank {blocker.dest} to receive {sent}"
        ended = blocker is not None and self.players[blocker].step is None
        return f"{player.where()} waits for a message of rank {blocker}{', which has ended' if ended else ''}"


def overwriting(player: Player, element: int, before: int) -> tuple[int, int, Message] | None:
    """Give the last message that was stored over an element before a step: by which step, moved how far, which."""
    for number, moved, message in reversed(player.stored):
        if number < before and message.start + moved <= element < message.stop + moved:
            return number, moved, message
    return None
