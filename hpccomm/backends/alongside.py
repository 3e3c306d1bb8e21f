"""Operations that go on while their owner waits for another one."""

from __future__ import annotations

from collections.abc import Iterable

from hpccomm.backends.base import LibraryCall, Operation, resumed


class Begun:
    """An operation that has been begun, and goes on as far as it gets without a library's blocking call."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._waits: str | LibraryCall | None = next(operation, None)

    def step(self) -> None:
        """Go on where that needs no waiting."""
        if isinstance(self._waits, str):
            self._waits = next(self._operation, None)

    def finish(self) -> Operation:
        """Go on to the end."""
        if self._waits is not None:
            yield from resumed(self._waits, self._operation)

    def close(self) -> None:
        """Give it up, unless it has ended."""
        self._operation.close()


def alongside(operation: Operation, others: Iterable[Begun]) -> Operation:
    """Give an operation that steps others whenever it waits."""
    for waits in operation:
        for other in others:
            other.step()
        yield waits
