"""The progress engine: one thread a process that steps all asynchronous operations of all groups.

Collectives of one group go in order, groups go independently of each other, and point-to-point operations go at once.
Where MPI grants no calls from several threads at once, there is no thread and whoever waits steps everything. Callbacks
of futures run in the thread; where one waits here, another thread takes over, but a wait inside torch (Future.wait) for
what has been asked for before is not seen. It knows no backend.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from hpccomm.backends.calls import call_threads
from hpccomm.backends.task import Task
from hpccomm.polling import pause

_SWITCH_INTERVAL_S = 1e-4  # a main thread in pure Python yields that often while operations are pending
_EAGER_ROUNDS = 50
_SHORTEST_REST_S = 20e-6
_LONGEST_REST_S = 500e-6
_LINGER_S, _GLANCE_S = 0.1, 1e-3
_STOP_S = 5.0


class Line:
    """The collectives of one group, in order.

    Attributes:
        turn: Held by whoever runs the group's collectives: a direct call, or the engine while `tasks` has any.
        tasks: Those that the engine is to run; the first one is under way.
        has_turn: Whether the engine holds `turn`.
    """

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self.tasks: deque[Task] = deque()
        self.has_turn = False


class Engine:
    """Steps tasks.

    Attributes:
        threaded: Whether a thread of its own steps; else those that wait.
        crowded: Whether more ranks than cores share this host.
    """

    def __init__(self) -> None:
        self.threaded = True
        self.crowded = False
        self._lines: list[Line] = []
        self._loose: list[Task] = []
        self._changed = threading.Condition()
        self._news = False
        self._thread: threading.Thread | None = None
        self._stops = False
        self._lingers = False  # the thread looks for work by itself soon
        self._interval = 0.0  # the interpreter's own switch interval, while ours is set

    def queue(self, line: Line, task: Task, *, has_turn: bool = False) -> None:
        """Take a collective, to be run after those of its group that were taken before.

        Args:
            line: The group's queue.
            task: The collective.
            has_turn: Whether it has begun already, and the caller hands over the group's turn with it.
        """
        with self._changed:
            if has_turn:
                line.has_turn = True
                line.tasks.appendleft(task)
            else:
                line.tasks.append(task)
            if line not in self._lines:
                self._lines.append(line)
            self._wake()

    def post(self, task: Task) -> None:
        """Take a point-to-point operation that has begun; most are waited for at once, which then needs no thread."""
        with self._changed:
            self._loose.append(task)
            if not self._lingers:
                self._wake()

    def wait(self, task: Task, line: Line | None, timeout_s: float | None = None) -> bool:
        """Wait for a task's end, in this thread where it can be stepped here, and tell whether it has ended.

        Args:
            task: The task.
            line: The queue it stands in, or None.
            timeout_s: How long at most; None for as long as its own deadline and those before it take.
        """
        begun = time.monotonic()
        end = math.inf if timeout_s is None else begun + timeout_s
        if not self.threaded:
            while not task.ended and time.monotonic() < end:
                self._round()
                pause(time.monotonic() - begun)
            return task.ended
        self.hand_over()
        if self._may_drive(task, line):
            with task.lock:
                ended = self._may_drive(task, line) and task.drive(self.crowded)
            if ended:
                self._retire(task, line)
        return task.wait(None if timeout_s is None else max(end - time.monotonic(), 0))

    def drain(self, line: Line) -> None:
        """Wait until a line's tasks have ended, well or not."""
        while (task := next(iter(list(line.tasks)), None)) is not None:
            self.wait(task, line)
            self._retire(task, line)

    def poll(self, task: Task) -> bool:
        """Tell whether a task has ended; steps all once where there is no thread."""
        if not self.threaded and not task.ended:
            self._round()
        return task.ended

    def fail(self, line: Line, loose: Iterable[Task], error: Callable[[Task], Exception]) -> None:
        """End a group's tasks with errors, where it goes away."""
        with self._changed:
            queued, apart = list(line.tasks), list(loose)
        for task in queued:
            with task.lock:
                task.fail(error(task))
            self._retire(task, line)
        for task in apart:
            with task.lock:
                task.fail(error(task))
            self._retire(task, None)

    @property
    def waits_for_others(self) -> bool:
        """Whether operations are pending that only those who wait can step."""
        return not self.threaded and bool(self._lines or self._loose)

    def hand_over(self) -> None:
        """Let another thread step, where this one is the engine's, inside a future's callback that is about to wait."""
        if self._thread is threading.current_thread():
            with self._changed:
                self._wake()

    def stop(self) -> None:
        """End the thread; the tasks that are left are stepped no more."""
        with self._changed:
            thread, self._thread, self._stops = self._thread, None, True
            self._changed.notify_all()
        if thread is not None and thread is not threading.current_thread():
            thread.join(_STOP_S)
        call_threads.stop()

    def _may_drive(self, task: Task, line: Line | None) -> bool:
        with self._changed:
            under_way = line is None or (line.has_turn and bool(line.tasks) and line.tasks[0] is task)
        return under_way and not task.ended

    def _wake(self) -> None:
        self._news = True
        if self._thread is threading.current_thread():  # inside a future's callback, which may wait for any task
            self._thread = None
        if self.threaded and self._thread is None:
            self._stops = False
            self._thread = threading.Thread(target=self._run, name="hpccomm-progress", daemon=True)
            call_threads.on_end = self._nudge
            self._thread.start()
        self._changed.notify_all()

    def _nudge(self) -> None:
        with self._changed:
            self._news = True
            self._changed.notify_all()

    def _run(self) -> None:
        mine = threading.current_thread()
        while self._thread is mine:
            self._idle()
            self._interval = before = self._interval or sys.getswitchinterval()
            sys.setswitchinterval(min(before, _SWITCH_INTERVAL_S))
            try:
                self._work(mine)
            finally:
                if self._thread in (mine, None):  # else another thread has taken over
                    sys.setswitchinterval(before)
                    self._interval = 0.0

    def _idle(self) -> None:
        """Wait for work: for a while by looking again and again, which costs those that bring work nothing."""
        with self._changed:
            lingers_until = time.monotonic() + _LINGER_S
            while not (self._lines or self._loose or self._stops):
                self._lingers = time.monotonic() < lingers_until
                self._changed.wait(_GLANCE_S if self._lingers else None)
            self._lingers = False

    def _work(self, mine: threading.Thread) -> None:
        """Step until nothing is pending."""
        idle_rounds = 0
        while self._thread is mine and (self._lines or self._loose):
            idle_rounds = 0 if self._round() else idle_rounds + 1
            self._rest(idle_rounds)

    def _rest(self, idle_rounds: int) -> None:
        """Let others have the interpreter, and after a while the core."""
        if idle_rounds < (1 if self.crowded else _EAGER_ROUNDS):
            time.sleep(0)
            return
        with self._changed:
            if not self._news:
                self._changed.wait(min(_LONGEST_REST_S, _SHORTEST_REST_S * idle_rounds / _EAGER_ROUNDS))
            self._news = False

    def _round(self) -> bool:
        """Step everything once, and tell whether anything ended."""
        progressed = False
        for line in list(self._lines):
            while self._step_first(line):
                progressed = True
        for task in list(self._loose):
            if self._step(task):
                self._retire(task, None)
                progressed = True
        return progressed

    def _step_first(self, line: Line) -> bool:
        task = self._first(line)
        if task is None or not self._step(task):
            return False
        self._retire(task, line)
        return True

    def _first(self, line: Line) -> Task | None:
        """Give a line's first task, once it is the engine's turn in its group."""
        with self._changed:
            if line.tasks and not line.has_turn:
                line.has_turn = line.turn.acquire(blocking=False)
            return line.tasks[0] if line.tasks and line.has_turn else None

    def _step(self, task: Task) -> bool:
        if task.ended:  # whoever ended it may still be completing its futures, whose callbacks may wait for others
            return True
        if not task.lock.acquire(blocking=False):  # somebody else steps it
            return False
        try:
            return task.step()
        finally:
            task.lock.release()

    def _retire(self, task: Task, line: Line | None) -> None:
        """Take an ended task out of the books, and give the turn back after the last of a line; twice does no harm."""
        with self._changed:
            if line is None:
                if task in self._loose:
                    self._loose.remove(task)
                return
            if task in line.tasks:
                line.tasks.remove(task)
            if not line.tasks:
                if line in self._lines:
                    self._lines.remove(line)
                if line.has_turn:
                    line.has_turn = False
                    line.turn.release()


engine = Engine()
"""That of this process."""
