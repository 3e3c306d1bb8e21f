"""What a group's backend tells and asks over the side channel, by the group's name."""

from __future__ import annotations

from contextlib import suppress

from hpccomm.bootstrap.vigil import vigil
from hpccomm.watch.flight import GroupLog, flight
from hpccomm.watch.senders import find_sender


class GroupBeside:
    """Tells and asks the other ranks of one group.

    Args:
        name: The group's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def given_up(self) -> int:
        """The highest number that another rank has given up."""
        log = self._log
        return 0 if log is None else log.given_up

    @property
    def timeout_s(self) -> float | None:
        """Seconds from the begin of the collective under way to its deadline; None where it has not waited yet."""
        current = None if (log := self._log) is None else log.current
        if current is None or current.since_s is None or current.deadline_s is None:
            return None
        return current.deadline_s - current.since_s

    def give_up(self, number: int) -> None:
        """Tell the other ranks that this one has given up what they call by a number; it may get lost."""
        log, inquiry = self._log, vigil.inquiry
        if log is not None and inquiry is not None:
            others = [rank for rank in log.ranks if rank != inquiry.rank]
            with suppress(OSError, ValueError):
                inquiry.channel.tell({"group": log.key, "gave_up": number}, others)

    def note(self, text: str) -> None:
        """Put a note into the group's record."""
        log = self._log
        if log is not None:
            log.notes.append(text)

    def find_sender(self, tag: int, timeout_s: float) -> int | None:
        """Wait for a message to this rank, and give the rank that sent it, or None where the group has died."""
        log, inquiry = self._log, vigil.inquiry
        return None if log is None or inquiry is None else find_sender(inquiry, log, tag, timeout_s)

    @property
    def _log(self) -> GroupLog | None:
        return flight.logs.get(self._name)
