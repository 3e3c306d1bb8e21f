"""A schedule's time by simulation: all ranks' steps against the links, event by event.

A message leaves when its sender has sent all it posted before and its receiver has received what was on the way to it;
then both are busy until it is there. Messages need not wait until their receive is posted. A message to another node
also queues for that node's injection, where it takes bytes / limit. Local copies are free. Left out: that sends may
have to finish before their interval is overwritten.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from itertools import count

from hpccomm.cost.fabric import Fabric
from hpccomm.errors import ScheduleError
from hpccomm.schedule import Interval, Step


def simulate(schedules: Sequence[Iterable[Step]], *, itemsize: int, fabric: Fabric) -> float:
    """Give the seconds until the last rank has finished, all starting at once.

    Args:
        schedules: The steps of every rank, in rank order.
        itemsize: Bytes of an element.
        fabric: The machine.

    Raises:
        ScheduleError: Not one schedule a rank of the fabric, or ranks that wait for ever.
    """
    if len(schedules) != fabric.size:
        found = f"{len(schedules)} schedules for {fabric.size} ranks"
        raise ScheduleError("simulate schedules", found=found, remedy="give the schedules of all ranks of the fabric")
    return _Simulation(schedules, itemsize, fabric).run()


class _Simulation:
    """Clocks and queues; all times in seconds.

    An event is (time, order, rank, source): a message of `source` arrives at `rank`, or, where `source` is -1, `rank`
    tries to send the first message that it has posted.
    """

    def __init__(self, schedules: Sequence[Iterable[Step]], itemsize: int, fabric: Fabric) -> None:
        ranks = range(len(schedules))
        self._itemsize = itemsize
        self._fabric = fabric
        self._steps = [iter(steps) for steps in schedules]
        self._current: list[Step | None] = [None] * len(ranks)
        self._clock = [0.0] * len(ranks)
        self._posted: list[deque[tuple[int, int, float]]] = [deque() for _ in ranks]
        self._arrived: defaultdict[tuple[int, int], deque[float]] = defaultdict(deque)
        self._sending_until = [0.0] * len(ranks)
        self._receiving_until = [0.0] * len(ranks)
        self._held_up: list[deque[int]] = [deque() for _ in ranks]
        self._injecting_until = dict.fromkeys(fabric.nodes, 0.0)
        self._events: list[tuple[float, int, int, int]] = []
        self._order = count()

    def run(self) -> float:
        for rank in range(len(self._steps)):
            self._advance(rank)
        while self._events:
            now, _, rank, source = heapq.heappop(self._events)
            if source < 0:
                self._depart(rank, now)
                continue
            if self._held_up[rank]:
                self._schedule(now, self._held_up[rank].popleft())
            self._arrived[source, rank].append(now)
            self._advance(rank)
        waiting = [rank for rank, step in enumerate(self._current) if step is not None]
        if waiting:
            found = f"ranks {waiting[:8]} wait for ever"
            raise ScheduleError("simulate schedules", found=found, remedy="verify them first; it says why")
        return max(self._clock)

    def _advance(self, rank: int) -> None:
        """Take a rank's steps until it must wait for a message that has not arrived."""
        while True:
            step = self._current[rank]
            if step is None:
                step = next(self._steps[rank], None)
                if step is None:
                    return
                self._post(rank, step)
            if not self._receive(rank, step):
                self._current[rank] = step
                return
            self._current[rank] = None

    def _post(self, rank: int, step: Step) -> None:
        nbytes = self._bytes(step.send)
        if not nbytes or step.dest == rank:
            return
        self._posted[rank].append((step.dest, nbytes, self._clock[rank]))
        if len(self._posted[rank]) == 1:
            self._schedule(max(self._clock[rank], self._sending_until[rank]), rank)

    def _receive(self, rank: int, step: Step) -> bool:
        nbytes = self._bytes(step.recv)
        if not nbytes:
            return True
        if step.source != rank:
            arrived = self._arrived[step.source, rank]
            if not arrived:
                return False
            self._clock[rank] = max(self._clock[rank], arrived.popleft())
        if step.reduce:
            self._clock[rank] += nbytes * self._fabric.gamma_s_per_byte
        return True

    def _depart(self, rank: int, now: float) -> None:
        """Send a rank's first posted message, or hold it up until its receiver is free."""
        dest, nbytes, _ = self._posted[rank][0]
        if self._receiving_until[dest] > now:
            self._held_up[dest].append(rank)
            return
        self._posted[rank].popleft()
        end = self._end(rank, dest, nbytes, now)
        self._sending_until[rank] = self._receiving_until[dest] = end
        self._schedule(end, dest, rank)
        if self._posted[rank]:
            self._schedule(max(end, self._posted[rank][0][2]), rank)

    def _end(self, rank: int, dest: int, nbytes: int, now: float) -> float:
        link = self._fabric.link(rank, dest)
        end = now + link.seconds(nbytes)
        if not self._fabric.crosses(rank, dest):
            return end
        node = self._fabric.nodes[rank]
        injected = max(now, self._injecting_until[node]) + nbytes / self._fabric.injection_bytes_per_s
        self._injecting_until[node] = injected
        return max(end, injected + link.alpha_s)

    def _schedule(self, time: float, rank: int, source: int = -1) -> None:
        heapq.heappush(self._events, (time, next(self._order), rank, source))

    def _bytes(self, interval: Interval) -> int:
        return (interval[1] - interval[0]) * self._itemsize
