"""Run one group's operations: number and record them, hold their deadlines, name what failed, refuse a dead group.

A synchronous collective runs in the caller's thread while nothing else of its group is under way; everything else
begins there and is handed to the progress engine. It stands between torch's face and the front door and knows no
backend in particular.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, NoReturn, cast
from weakref import WeakSet

import torch

from hpccomm.backends.base import Backend, LibraryCall, Operation, chained
from hpccomm.backends.checked import compared
from hpccomm.backends.describe import description_of, shape_of
from hpccomm.backends.door import FrontDoor
from hpccomm.backends.drive import GroupDeadError, OverdueError, begin_waiting, drive, try_ahead
from hpccomm.backends.engine import Line, engine
from hpccomm.backends.lane import Carried, Lane, LaneDoor, combined
from hpccomm.backends.task import Task
from hpccomm.backends.work import DoneWork, PendingWork, StreamWork
from hpccomm.errors import (
    BackendError,
    DeadGroupError,
    DeadlineError,
    HpccommError,
    MismatchError,
    OptionError,
    RankLostError,
    UnsupportedError,
)
from hpccomm.expression import Expression
from hpccomm.watch.flight import P2P, Entry, GroupLog
from hpccomm.watch.oversight import NOBODY, Watch

AnyWork = DoneWork | PendingWork | StreamWork


class Runner:
    """The operations of one group.

    Args:
        backend: What carries them.
        log: The group's record.
        asked: The expression that the backend was built from.
        watch: Who looks after it.
        lane: The group's way to this rank's GPU, where it has one.

    Attributes:
        timeout_s: The deadline of operations that give none, in seconds.
        line: Its collectives that are under way or queued.
        done: The work of whatever has ended.
        notes_all: Whether it notes every operation, so that none may go past it.
    """

    notes_all = False

    def __init__(
        self,
        backend: Backend,
        log: GroupLog,
        *,
        asked: Expression,
        watch: Watch = NOBODY,
        lane: Lane | None = None,
    ) -> None:
        self.backend, self.lane = backend, lane
        self.door = self._door_of(backend)
        self.expression = backend.expression
        self.log, self.asked = log, asked
        self.timeout_s = backend.context.timeout_s
        self._watch = watch
        self.line = Line()
        self._exchanges: WeakSet[Task] = WeakSet()
        self._closed = False
        self.done = DoneWork()

    def _door_of(self, backend: Backend) -> FrontDoor:
        door = FrontDoor(backend)
        return door if self.lane is None else cast(FrontDoor, LaneDoor(door, self.lane))

    def run(self, what: str, operation: Operation, tensors: Sequence[Any], options: Any) -> AnyWork:
        """Run a collective, or begin it where the caller does not wait for it."""
        log, line = self.log, self.line
        log.started = sequence = log.started + 1
        is_async = options is None or getattr(options, "asyncOp", True) is not False
        if type(operation) is Carried:
            return self._run_carried(what, operation, tensors, options, is_async)
        if self.backend.checks:
            operation = compared(self.backend, description_of(what, tensors, options), operation)
        is_queued = is_async or engine.waits_for_others or log.why_dead is not None or bool(line.tasks)
        if is_queued or not line.turn.acquire(False):
            return self._begin(log.begin(what, *shape_of(tensors)), operation, tensors, options, is_async)
        try:
            waits = try_ahead(operation)
            if waits is None:
                log.entries.append((sequence, what, *shape_of(tensors), monotonic()))
            else:
                self.finish(log.begin(what, *shape_of(tensors)), operation, waits, options)
        except BaseException as error:
            operation.close()
            self.give_up(log.current or log.begin(what, *shape_of(tensors)), error)
        finally:
            log.current = None
            line.turn.release()
        return self.done

    def _run_carried(
        self, what: str, operation: Carried, tensors: Sequence[Any], options: Any, is_async: bool
    ) -> DoneWork | StreamWork:
        """Run a collective on a GPU's tensors; the host goes on when its work is queued."""
        if self.backend.checks:
            text = description_of(what, tensors, options)
            operation = operation.inside(lambda inner: compared(self.backend, text, inner))
        entry = self.log.begin(what, *shape_of(tensors))
        work = StreamWork(self._begin(entry, operation, tensors, options, is_async), operation, tensors)
        if is_async:
            return work
        operation.let_wait()
        return self.done

    def finish(self, entry: Entry, operation: Operation, waits: str | LibraryCall, options: Any) -> None:
        """Step a collective to its end in this thread."""
        self.log.current = entry
        begin_waiting(entry, self._timeout(options))
        engine.hand_over()
        drive(operation, waits, entry, self.log, crowded=engine.crowded)
        entry.end("done")

    def run_all(self, what: str, operations: Iterable[Operation], tensors: Sequence[Any], options: Any) -> AnyWork:
        """Run several collectives, one after the other, under one deadline."""
        return self.run(what, combined(operations, chained), tensors, options)

    def post(
        self,
        what: str,
        operation: Operation,
        tensors: Sequence[torch.Tensor],
        peer: int,
        tag: int,
        *,
        found: Sequence[int] = (),
    ) -> PendingWork | StreamWork:
        """Begin a point-to-point operation and give the work that ends it.

        Args:
            what: ``send`` or ``recv``.
            operation: The operation.
            tensors: What it sends or fills.
            peer: The rank at the other end, or -1 for any.
            tag: The message's tag.
            found: Where the operation puts the rank that it received from, where that may be any.
        """
        entry = self.log.begin_exchange(what, *shape_of(tensors), peer, tag)
        if self.log.why_dead is not None:
            raise self._dead(entry)
        task = self._task(operation, entry, tensors, self.timeout_s)
        self._exchanges.add(task)
        if not task.begin():
            engine.post(task)
        elif task.error is not None:
            raise task.error
        work = PendingWork(task, sources=found if peer < 0 else [peer])
        return StreamWork(work, operation, tensors) if type(operation) is Carried else work

    def end(self, why: str, entry: Entry | None = None, *, overdue: bool = False, everywhere: bool = False) -> None:
        """Refuse all operations from one on, for a reason, and let the other ranks know, unless it is theirs too."""
        if self.log.why_dead is None:
            self.log.died_at = 0 if entry is None or entry.collective in P2P else entry.sequence
            self.log.overdue, self.log.why_dead = overdue, why
            self._watch.on_death(self.log, everywhere)

    def renew(self, backend: Backend) -> None:
        """Go on with another backend, in the group's new generation, after `stop`."""
        self.backend.context.health.broken = True
        self.backend.close()
        self.backend, self.door = backend, self._door_of(backend)
        self.log.renew()

    def stop(self, why: str) -> None:
        """Fail what is under way, and refuse all further operations for a reason; the other ranks are not told."""
        self.log.died_at = 0
        self.log.why_dead = self.log.why_dead or why
        engine.fail(self.line, self._exchanges, lambda task: self._dead(task.entry))

    def close(self) -> None:
        """Wait for the collectives that have begun, fail everything else and free the backend, once."""
        if not self._closed:
            self._closed = True
            engine.drain(self.line)
            self.backend.context.health.broken |= self.log.why_dead is not None
            self.stop("it was shut down")
            self.backend.close()
            self._watch.on_close(self.log)

    def _begin(
        self, entry: Entry, operation: Operation, tensors: Sequence[Any], options: Any, is_async: bool
    ) -> DoneWork | PendingWork:
        """Begin a collective, or queue it behind those of this group that are under way."""
        if self.log.refuses(entry):
            raise self._dead(entry)
        line, task = self.line, self._task(operation, entry, tensors, self._timeout(options))
        begins = not line.tasks and line.turn.acquire(False)
        if begins and self._ends_at_once(task):
            return DoneWork(tensors)
        if not begins:
            entry.state = "queued"
        engine.queue(line, task, has_turn=begins)
        work = PendingWork(task, line)
        if not is_async:
            work.wait()
        return work

    def _ends_at_once(self, task: Task) -> bool:
        """Begin a collective with the group's turn, which is given back where it ends or fails at once."""
        ended = True
        try:
            ended = task.begin()
        finally:
            if ended:
                self.line.turn.release()
        if task.error is not None:
            raise task.error
        return ended

    def _task(self, operation: Operation, entry: Entry, tensors: Sequence[Any], timeout_s: float) -> Task:
        return Task(operation, entry, self.log, timeout_s=timeout_s, tensors=tensors, name_error=self._failed)

    def _timeout(self, options: Any) -> float:
        """Give a call's deadline; torch's options are slow to read, so this is asked only where one waits."""
        timeout = getattr(options, "timeout", None)
        return timeout.total_seconds() if timeout is not None and timeout.total_seconds() > 0 else self.timeout_s

    def give_up(self, entry: Entry, error: BaseException) -> NoReturn:
        """Raise what the caller of a collective gets for what it failed with."""
        entry.end("failed")
        if not isinstance(error, Exception):
            self.end(f"{entry} was interrupted", entry)
            raise error
        named = self._failed(entry, error)
        if named is error:
            raise error
        raise named from None if isinstance(error, (OverdueError, GroupDeadError)) else error

    def _failed(self, entry: Entry, error: Exception) -> Exception:
        """Give the error that waiters get; the group is dead unless the operation was refused before it began."""
        if isinstance(error, (UnsupportedError, OptionError, MismatchError)):
            return error
        if lost := self._watch.lost(None if isinstance(error, (OverdueError, GroupDeadError)) else error):
            self.end(lost, entry, everywhere=True)
            return self._of_loss(entry, lost)
        if isinstance(error, HpccommError):
            self.end(error.summary, entry, everywhere=error.everywhere)
            return error
        waited = monotonic() - (entry.since_s or entry.posted_s)
        if isinstance(error, OverdueError):
            found = f"waited {waited:.1f} s for {error}"
            self.end(f"{entry} passed its deadline, {found}", entry, overdue=True)
        elif isinstance(error, GroupDeadError):
            found = f"the group is dead: {error}"
        else:
            found = f"{type(error).__name__}: {error}"
            self.end(f"{entry} failed on rank {self.log.ranks[self.log.rank]}: {error}", entry)
        told = self.log.heard and not self.log.overdue  # the rank that failed has said why
        blame = "" if told else self._watch.blame(self.log, entry)
        kind = DeadGroupError if isinstance(error, GroupDeadError) else BackendError
        return self._ended(entry, f"{found}: {blame}" if blame else found, kind)

    def _dead(self, entry: Entry) -> HpccommError:
        entry.end("failed")
        self.log.forget(entry)
        if lost := self._watch.lost(None):
            return self._of_loss(entry, lost)
        return self._ended(entry, f"the group is dead: {self.log.why_dead}", DeadGroupError)

    def _of_loss(self, entry: Entry, lost: str) -> RankLostError:
        return RankLostError(
            f"{entry} of group {self.log.name} over {self.expression}",
            found=lost,
            remedy="call World.shrink on all ranks that are left, and do again what was under way",
        )

    def _ended(self, entry: Entry, found: str, kind: type[HpccommError]) -> HpccommError:
        return (DeadlineError if self.log.overdue else kind)(
            f"{entry} of group {self.log.name} over {self.expression}",
            found=found,
            remedy="look for the rank that is missing or failed first; the group is dead, World.renew makes it anew",
        )
