"""What can be wrong with a schedule, each by its name and with what to do about it."""

from __future__ import annotations

from enum import Enum

from hpccomm.errors import ScheduleError


class Fault(Enum):
    """A kind of fault: its name in error texts, and the remedy."""

    DOUBLE_COUNT = "double count", "send every contribution to where it is added once only"
    MISSING = "missing contribution", "send these contributions there too, and add them before the result is passed on"
    STALE = "stale data sent", "send it after the step that completes it and before the step that overwrites it"
    UNDEFINED = "undefined operand", "let the first receive of an interval store (reduce=False)"
    MISPLACED = "wrong place", "correct the intervals, so that every element comes where it belongs"
    BITS = "bits differ", "add in one order: at one rank that sends on the result, or in rank order everywhere"
    DEADLOCK = "deadlock", "give every receive a send that is posted before its sender comes to wait"
    UNRECEIVED = "unreceived", "add the receive or drop the send"
    SIZE = "size mismatch", "give both ends of a message intervals of one length, in one order"
    RANGE = "out of range", "keep intervals inside the buffer, with start <= stop"
    PEER = "no such peer", "name a rank of the group for every interval; send to oneself and receive in one step"
    LATE = "not synchronised", "let every rank hear, directly or through others, from all ranks"

    def __init__(self, title: str, remedy: str) -> None:
        self.title = title
        self.remedy = remedy

    def error(self, asked: str, text: str) -> ScheduleError:
        """Make the error that names this fault and says what was found."""
        return ScheduleError(asked, found=f"{self.title}: {text}", remedy=self.remedy)


def of_ranks(mask: int) -> str:
    """Write the ranks whose bits are set: ``rank 3``, ``ranks 0, 2, 5``."""
    ranks = [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
    names = [str(rank) for rank in ranks]
    listed = names if len(names) <= 8 else [*names[:6], "...", names[-1]]
    return f"rank{'s' * (len(names) != 1)} {', '.join(listed) or 'none'}"


def elements(start: int, stop: int) -> str:
    """Write an interval: ``elements [0, 4)``."""
    return f"elements [{start}, {stop})"
