"""The flight record: what each group's operations did last on this rank, kept as plain data.

Whoever runs operations writes it, the watchdog reads it from its own thread: single assignments only, so that no lock
is needed but for counting messages. `python -m hpccomm.doctor --flight DIR` merges the files of all ranks. It knows
neither torch nor MPI.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

from hpccomm.whole import write_whole

KEPT = 1000
"""Operations kept of each group."""

P2P = frozenset({"send", "recv"})


class Entry:
    """One operation.

    Attributes:
        sequence: Its number in its group; collectives and point-to-point operations are counted apart.
        collective: Its name.
        count: Elements on this rank.
        dtype: Their dtype, or None.
        posted_s: When it was asked for, on the monotonic clock, in seconds.
        ended_s: When it ended, or None.
        state: ``queued``, ``waiting``, ``done`` or ``failed``.
        waiting_for: What it waits for, in the backend's words.
        since_s: When it began to wait, or None while it has not waited yet.
        deadline_s: When it is given up, or None while that is not known.
        in_library: Whether it is inside a library's call that holds no deadline itself, or queued on a GPU.
        is_past: Tells whether a GPU has come past it, where it is queued on one.
        peer: The rank of the group at the other end of a send or receive; -1 for none in particular.
    """

    # What many operations never change
    ended_s: float | None = None
    state = "waiting"
    waiting_for = ""
    since_s: float | None = None
    deadline_s: float | None = None
    in_library = False
    is_past: Callable[[], bool] | None = None
    peer = -1

    def __init__(self, sequence: int, collective: str, count: int, dtype: Any) -> None:
        self.sequence = sequence
        self.collective = collective
        self.count = count
        self.dtype = dtype
        self.posted_s = monotonic()

    def __str__(self) -> str:
        if self.dtype is None:
            return f"{self.collective}, operation {self.sequence}"
        of = f"{self.count} {_dtype_name(self.dtype)}"
        return f"{self.collective} of {of}, operation {self.sequence}"

    def end(self, state: str) -> None:
        """Note that it has ended."""
        self.ended_s = monotonic()
        self.state = state

    def as_data(self) -> dict[str, Any]:
        """Give what the file says of it."""
        return {
            "sequence": self.sequence,
            "collective": self.collective,
            "count": self.count,
            "dtype": _dtype_name(self.dtype),
            "posted_s": self.posted_s,
            "ended_s": self.ended_s,
            "state": self.state,
            "waiting_for": self.waiting_for if self.ended_s is None else "",
        }


Brief = tuple[int, str, int, Any, float]
"""A collective that ended at once: sequence, collective, count, dtype, and when, in seconds."""


def _spelt_out(brief: Brief) -> Entry:
    entry = Entry(*brief[:4])
    entry.state, entry.posted_s, entry.ended_s = "done", brief[4], brief[4]
    return entry


class GroupLog:
    """The operations of one group on this rank.

    Attributes:
        name: The group's name, the same on its ranks.
        ranks: Its ranks in the job, in order.
        rank: This rank in the group.
        expression: Its backend.
        generation: How often its ranks have met to renew it.
        entries: The last operations, oldest first; those that never waited as `Brief`, which costs less to make.
        started: Number of the last collective that was begun; whoever begins one counts.
        current: The collective under way, if any.
        exchanges: The point-to-point operations under way.
        messages: How many sends to and receives from each rank of the group were posted with each tag.
        given_up: The highest number that another rank has given up, as the group's backend counts.
        notes: What its backend had to say, such as that it fell back to another one.
        why_dead: Why the group takes no operation any more, or None.
        died_at: The collective that it died at; earlier ones may still end well here. 0 for all.
        overdue: Whether it died of a deadline.
        heard: Whether another rank gave it up and said so.
    """

    def __init__(self, name: str, ranks: Sequence[int], rank: int, expression: str) -> None:
        self.name, self.ranks, self.rank, self.expression = name, tuple(ranks), rank, expression
        self.generation = 0
        self.entries: deque[Entry | Brief] = deque(maxlen=KEPT)
        self.started = 0
        self.exchanged = 0
        self.current: Entry | None = None
        self.exchanges: set[Entry] = set()
        self._on_device: deque[Entry] = deque()
        self.messages: Counter[tuple[str, int, int]] = Counter()
        self._counting = threading.Lock()
        self.given_up = 0
        self.notes: list[str] = []
        self.why_dead: str | None = None
        self.died_at = 0
        self.overdue = self.heard = False

    @property
    def key(self) -> str:
        """The group's name among all ranks and generations."""
        return f"{self.name}#{self.generation}"

    def begin(self, collective: str, count: int, dtype: Any) -> Entry:
        """Note the collective that was numbered last."""
        entry = Entry(self.started, collective, count, dtype)
        self.entries.append(entry)
        return entry

    def last(self) -> list[Entry]:
        """Give the last operations, oldest first."""
        return [entry if isinstance(entry, Entry) else _spelt_out(entry) for entry in list(self.entries)]

    def begin_exchange(self, name: str, count: int, dtype: Any, peer: int, tag: int = 0) -> Entry:
        """Number a send to or receive from a rank of the group, -1 for any, and note it."""
        self.exchanged += 1
        with self._counting:
            self.messages[name, peer, tag] += 1
        entry = Entry(self.exchanged, name, count, dtype)
        entry.peer = peer
        self.entries.append(entry)
        self.exchanges.add(entry)
        return entry

    def claim(self, sent: Mapping[int, int], tag: int, key: str) -> int | None:
        """Count a receive from the first rank that has sent more than was received of it, and give that rank.

        Args:
            sent: How many messages with the tag each rank has sent to this one.
            tag: The tag.
            key: The group's when the ranks were asked; nothing is claimed after a renewal.
        """
        with self._counting:
            for peer, count in sent.items():
                if key == self.key and count > self.messages["recv", peer, tag]:
                    self.messages["recv", peer, tag] += 1
                    return peer
        return None

    def begin_generation(self) -> None:
        """Begin the next generation, of which nothing was sent or received; dead as the last one until `renew`."""
        with self._counting:
            self.messages.clear()  # first, so that nobody who asks by the new key is told old numbers
            self.generation += 1

    def renew(self) -> None:
        """Take operations again, in the generation that has begun."""
        with self._counting:
            self.messages.clear()  # of what was refused meanwhile
        self.given_up = self.died_at = 0
        self.overdue = self.heard = False
        self.why_dead = None

    def forget(self, entry: Entry) -> None:
        """Note that an operation is under way no more."""
        self.exchanges.discard(entry)
        if self.current is entry:
            self.current = None

    def watch(self, entry: Entry, is_past: Callable[[], bool]) -> None:
        """Note that all of an operation is queued on a GPU, and how to tell that this has come past it."""
        entry.is_past, entry.in_library, entry.waiting_for = is_past, True, "the GPU"
        self._on_device.append(entry)

    def _still_on_device(self) -> list[Entry]:
        """Give the operations that a GPU has not come past; it takes them in their order."""
        queued = self._on_device
        while queued and _is_past(queued[0]):
            queued.popleft().end("done")
        return list(queued)

    def refuses(self, entry: Entry) -> bool:
        """Tell whether an operation has no chance any more, as the group is dead."""
        return self.why_dead is not None and (entry.collective in P2P or entry.sequence >= self.died_at)

    def waiting(self) -> list[Entry]:
        """Give the operations under way that have waited."""
        current, under_way = self.current, list(self.exchanges)
        if current is not None:
            under_way.append(current)
        under_way += self._still_on_device()
        return [entry for entry in under_way if entry.since_s is not None and entry.ended_s is None]

    def as_data(self) -> dict[str, Any]:
        """Give what the file says of it."""
        return {
            "name": self.key if self.generation else self.name,
            "expression": self.expression,
            "ranks": list(self.ranks),
            "started": self.started,
            "notes": self.notes,
            "operations": [entry.as_data() for entry in self.last()],
        }


class Flight:
    """The logs of all groups of this process."""

    def __init__(self) -> None:
        self.logs: dict[str, GroupLog] = {}

    def add(self, log: GroupLog) -> None:
        """Keep a group's log; one of the same name is replaced."""
        self.logs[log.name] = log

    def drop(self, log: GroupLog) -> None:
        """Forget a group's log, unless another has taken its name."""
        if self.logs.get(log.name) is log:
            del self.logs[log.name]

    def write(self, folder: Path, *, rank: int, size: int, job: str, why: str) -> Path:
        """Write ``rank<N>.json`` into a folder, which is made where it is missing.

        Args:
            folder: Where to.
            rank: This rank.
            size: The number of ranks.
            job: Tells the job's files from those of other jobs.
            why: What made it write.

        Returns:
            The file.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"rank{rank}.json"
        groups = [log.as_data() for log in list(self.logs.values())]
        record = {
            "version": 1,
            "rank": rank,
            "size": size,
            "job": job,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "why": why,
            "written_at": time.time(),
            "clock_s": monotonic(),
            "groups": groups,
        }
        write_whole(file, json.dumps(record))
        return file


def _is_past(entry: Entry) -> bool:
    try:
        return entry.is_past is None or entry.is_past()
    except RuntimeError:  # of a device that failed; whoever uses it next is told
        return True


def _dtype_name(dtype: Any) -> str:
    return "" if dtype is None else str(dtype).removeprefix("torch.")


flight = Flight()
"""The flight record of this process."""
