"""Messages between two ranks in the order in which they were asked for, whatever each waits for before it is posted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable

from hpccomm.backends.base import PREPARES, Operation, resumed


class Turns:
    """The lines in which messages stand until they are posted; those of one line match in order at the other end."""

    def __init__(self) -> None:
        self._lines: dict[Hashable, deque[object]] = {}

    def take(self, line: Hashable, before: Operation, post: Callable[[], Operation]) -> Operation:
        """Post a message after those of its line that began before it.

        Args:
            line: Names the line.
            before: What must have ended before it is posted; goes on while others are waited for.
            post: Makes the message's operation, which is posted by its first step.
        """
        turns, mine = self._lines.setdefault(line, deque()), object()
        turns.append(mine)
        try:
            yield from before
            while turns[0] is not mine:
                yield PREPARES
            posted = post()
            waits = next(posted, None)
        finally:
            turns.remove(mine)
        if waits is not None:
            yield from resumed(waits, posted)
