"""Play cases in one world of process groups, and have all ranks know how each ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mpi4py import MPI

from fuzz import judge
from fuzz.alarm import Alarm
from fuzz.calls import CALLS
from fuzz.case import Case, Part
from fuzz.groups import Groups
from fuzz.kinds import COLLECTIVES
from fuzz.seat import Call, Seat
from fuzz.works import wait
from hpccomm.errors import UnsupportedError
from hpccomm.polling import until
from reference import has_meaning

_DIGEST = 8


@dataclass
class Ended:
    """How one call ended on this rank.

    Attributes:
        call: The call.
        refused: Whether it must be refused.
        error: What it raised.
        left: When barriers were come to and left.
    """

    call: Call
    refused: bool
    error: Exception | None = None
    left: tuple[float, float] = (0.0, 0.0)


class Player:
    """Plays cases.

    Args:
        alarm: Ends a case that hangs.
        again: Gives the command that plays a case again.

    Attributes:
        slowest: Seconds and number of the case that took longest.
    """

    def __init__(self, alarm: Alarm, again: Callable[[int], str]) -> None:
        self._comm = MPI.COMM_WORLD.Dup()
        self.rank, self.size = self._comm.rank, self._comm.size
        self._alarm, self._again = alarm, again
        self.slowest = (0.0, -1)

    def play(self, case: Case, groups: Groups) -> list[str]:
        """Play a case on all ranks, and give what was wrong on any, the same on all."""
        self._alarm.begin(f"case {case.number}: {case}\n    again: {self._again(case.number)}")
        group = groups.get(case.expression, case.max_count)
        start = time.monotonic()
        ended = self._run(case, group)
        found = self._compared(case, ended)
        self.slowest = max(self.slowest, (time.monotonic() - start, case.number))
        if found:
            groups.drop(case.expression, case.max_count)
        self._alarm.end()
        return found

    def _run(self, case: Case, group: Any) -> list[Ended]:
        """Begin all calls, and wait for each at once or, in the case's order, at the end."""
        under_way: list[tuple[Ended, Sequence[Any]]] = []
        for part in case.parts:
            ended = self._seated(case, part, group)
            under_way.append((ended, self._begun(ended)))
            if not case.order:
                self._waited(*under_way[-1], case.wait)
        for index in case.order:
            self._waited(*under_way[index], case.wait)
        return [ended for ended, _ in under_way]

    def _seated(self, case: Case, part: Part, group: Any) -> Ended:
        adds_narrow = case.expression == "gloo"
        seat = Seat(part, self.rank, self.size, group=group, asynchronous=bool(case.order), adds_narrow=adds_narrow)
        call = CALLS[part.collective](seat)
        meaningless = COLLECTIVES[part.collective].reduces and not has_meaning(part.op, part.dtype)
        return Ended(call, meaningless or call.overlaps)

    @staticmethod
    def _begun(ended: Ended) -> Sequence[Any]:
        came = time.monotonic()
        try:
            works = ended.call.begin()
        except Exception as error:
            ended.error, works = error, []
        ended.left = came, time.monotonic()
        return works

    @staticmethod
    def _waited(ended: Ended, works: Sequence[Any], way: str) -> None:
        try:
            for work in works:
                wait(work, way)
        except Exception as error:
            ended.error = error
        ended.left = ended.left[0], time.monotonic()

    def _compared(self, case: Case, ended: Sequence[Ended]) -> list[str]:
        """Judge on every rank, and exchange details only where one of them has found something."""
        mine = [text for part, one in zip(case.parts, ended, strict=True) for text in _problems(part, one)]
        same = judge.digest([one.call for one in ended if one.error is None])
        raised = [f"{type(one.error).__name__}: {one.error}" for one in ended if one.error is not None]
        summary = bytes([bool(mine), hash_of(raised)]) + same
        if len(set(self._exchanged(summary))) == 1 and not mine and not any(one.call.is_barrier for one in ended):
            return []
        lefts = [one.left for one in ended if one.call.is_barrier]
        everyone = self._comm.allgather((mine, raised, same, lefts))
        callers: dict[str, list[int]] = {}
        for rank, (texts, *_) in enumerate(everyone):
            for text in texts:
                callers.setdefault(text, []).append(rank)
        found = [f"rank {', '.join(map(str, ranks))}: {text}" for text, ranks in callers.items()]
        if not found and len({str(errors) for _, errors, *_ in everyone}) > 1:
            found.append(f"errors differ between ranks: {[errors for _, errors, *_ in everyone]}")
        if not found and len({bits for _, _, bits, _ in everyone}) > 1:
            found.append("results differ between ranks in their bits")
        for times in zip(*(lefts for *_, lefts in everyone), strict=True):
            if min(left for _, left in times) < max(came for came, _ in times):
                found.append(f"a barrier let ranks go before all had come: {times}")
        return found

    def _exchanged(self, summary: bytes) -> list[bytes]:
        """Gather some bytes of every rank without holding a core."""
        length = len(summary)
        everyone = bytearray(length * self.size)
        request = self._comm.Iallgather([summary, MPI.BYTE], [everyone, MPI.BYTE])
        until(request.Test)
        return [bytes(everyone[rank * length : (rank + 1) * length]) for rank in range(self.size)]


def hash_of(texts: list[str]) -> int:
    """Give a byte made from texts."""
    return sum(sum(text.encode()) for text in texts) % 251


def _problems(part: Part, ended: Ended) -> list[str]:
    if ended.refused:
        if not isinstance(ended.error, UnsupportedError):
            return [f"{part.collective} must be refused, but {_how(ended.error)}"]
        return list(judge.refusal_problems(ended.call))
    if ended.error is not None:
        return [f"{part.collective} {_how(ended.error)}"]
    return [f"{part.collective}: {text}" for text in judge.problems(ended.call, part.values)]


def _how(error: Exception | None) -> str:
    return "ended well" if error is None else f"raised {type(error).__name__}: {error}"
