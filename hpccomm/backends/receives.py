"""Receives in an order in which no tensor gets pieces of two messages, where messages take several calls of a library.

A receive from a rank is posted whole. One from any rank can be so only when that rank is known: when its first piece
has come, or, over a backend that asks the senders, before that is posted. While the first piece is waited for, later
receives with the same tag wait too; a message for them would be taken by that piece anyway. It knows no backend in
particular.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence

import torch

from hpccomm.backends.base import Backend, LibraryCall, Operation, posted, resumed, together

Posting = Generator[str | LibraryCall, None, Operation]


class Receives:
    """The receives of one group.

    Args:
        backend: What carries them.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lines: dict[Hashable, deque[object]] = {}

    def begin(self, tag: int, receive: Callable[[], Operation]) -> Operation:
        """Give a receive that is posted whole, behind those of its tag that wait.

        Args:
            tag: The message's tag.
            receive: Makes it; some backends post it by that already.
        """
        return self._hold(tag, lambda: posted(receive())) if self._lines.get(tag) else receive()

    def begin_of_any(self, pieces: Sequence[torch.Tensor], tag: int, found: list[int]) -> Operation:
        """Give a receive from any rank in several pieces, which appends that rank to `found`."""
        # Where senders are asked, a receive that names its source counts as posted, and must not wait here.
        line = ("of any rank", tag) if self._backend.asks_senders else tag
        return self._hold(line, lambda: self._post_of_any(pieces, tag, found))

    def _hold(self, line: Hashable, post: Callable[[], Posting]) -> Operation:
        """Post a receive after those of its line, and hold the later ones up until it is posted."""
        turns, mine = self._lines.setdefault(line, deque()), object()
        turns.append(mine)
        try:
            while turns[0] is not mine:
                yield "the receives before it"
            left = yield from post()
        finally:
            turns.remove(mine)
        yield from left

    def _post_of_any(self, pieces: Sequence[torch.Tensor], tag: int, found: list[int]) -> Posting:
        """Post the first piece and, as soon as the rank is known, the others from the same."""
        first = self._backend.recv_any(pieces[0], tag, found)
        waits = next(first, None)
        while waits is not None and not found:
            yield waits
            waits = next(first, None)
        begun = [] if waits is None else [resumed(waits, first)]
        others = (self._backend.recv(piece, found[-1], tag) for piece in pieces[1:])
        return (yield from posted(together([*begun, *others])))
