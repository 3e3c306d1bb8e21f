"""Step one operation to its end in the caller's own thread, against its deadline, and wait well meanwhile.

This is the direct path of a synchronous call. It knows no backend.
"""

from __future__ import annotations

import time

from hpccomm.backends.base import LibraryCall, Operation
from hpccomm.polling import pause
from hpccomm.watch.flight import Entry, GroupLog

TRIES = 20
"""Polls before an operation counts as waiting, since noting that and waking others costs time."""

# Polls between two looks at the clock and at the group's state.
_POLLS_A_LOOK = 8
_EAGER_POLLS = 10_000  # made at once before others may have the core


class OverdueError(Exception):
    """An operation was given up at its deadline."""


class GroupDeadError(Exception):
    """An operation was given up because another rank has given its group up."""


def try_ahead(operation: Operation) -> str | LibraryCall | None:
    """Step an operation a few times, and give what it waits for, or None where it has ended."""
    waits = next(operation, None)
    tries = TRIES
    while type(waits) is str and tries:
        waits = next(operation, None)
        tries -= 1
    return waits


def drive(operation: Operation, waits: str | LibraryCall, entry: Entry, log: GroupLog, *, crowded: bool) -> None:
    """Step an operation until it ends.

    Args:
        operation: The operation, stepped already; whoever asked closes it where this raises.
        waits: What it yielded last.
        entry: Its record, with its deadline.
        log: The record of its group.
        crowded: Whether more ranks than cores share this host, so that waiting must not hold a core.

    Raises:
        OverdueError: The deadline has passed.
        GroupDeadError: The group has died meanwhile.
    """
    polls, begun = 0, time.monotonic()
    following: str | LibraryCall | None = waits
    while following is not None:
        if type(following) is LibraryCall:
            give_up_if_due(entry, log)
            make_call(following, entry)
            begun = time.monotonic()
        else:
            if polls % _POLLS_A_LOOK == 0:
                entry.waiting_for = following  # type: ignore[assignment]
                give_up_if_due(entry, log)
            polls += 1
            if crowded or polls > _EAGER_POLLS:
                pause(time.monotonic() - begun)
        following = next(operation, None)


def begin_waiting(entry: Entry, timeout_s: float) -> None:
    """Note that an operation waits from now on, and until when."""
    entry.since_s = time.monotonic()
    entry.deadline_s = entry.since_s + timeout_s
    entry.state = "waiting"


def give_up_if_due(entry: Entry, log: GroupLog) -> None:
    """Raise where an operation's deadline has passed or its group has died."""
    if log.refuses(entry):
        raise GroupDeadError(log.why_dead)
    assert entry.deadline_s is not None
    if time.monotonic() > entry.deadline_s:
        raise OverdueError(entry.waiting_for)


def make_call(call: LibraryCall, entry: Entry) -> None:
    """Make a library's call here and now."""
    assert entry.deadline_s is not None
    entry.waiting_for = call.what
    entry.in_library = not call.bounded
    try:
        call.call(max(entry.deadline_s - time.monotonic(), 0.001))
    except Exception as error:
        if time.monotonic() >= entry.deadline_s:
            raise OverdueError(call.what) from error
        raise
    finally:
        entry.in_library = False
