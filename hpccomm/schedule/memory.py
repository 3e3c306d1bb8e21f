"""Buffers whose elements are symbols: which ranks' inputs were added, in which order, and which element of them.

Elements that hold the same are kept as one piece, so that work grows with the number of pieces, not of elements.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator

from hpccomm.schedule.step import Interval

Value = tuple[int, int]
"""A sum, by its number in `Sums`, and a shift: element i holds that sum of the inputs' elements ``i + shift``."""
Piece = tuple[int, Value]
"""Where a value begins; it goes on to the next piece."""
UNDEFINED: Value = (0, 0)


class Sums:
    """All sums that occur, numbered: 0 is undefined, r + 1 the input of rank r, then sums of two in order of birth.

    Two sums have one number exactly if they add the same inputs in the same order, but for the order of the two
    operands of each addition, which makes no difference to the result's bits.

    Attributes:
        ranks: Of each sum the ranks that contribute, as bits.
    """

    def __init__(self, size: int) -> None:
        self.ranks = [0, *(1 << rank for rank in range(size))]
        self._leaves = len(self.ranks)
        self._numbers: dict[tuple[int, int], int] = {}
        self._operands: list[tuple[int, int]] = []

    def add(self, one: int, other: int) -> int:
        """Give the sum of two sums; 0 where a rank would count twice or an operand is undefined."""
        operands = (one, other) if one < other else (other, one)
        number = self._numbers.get(operands)
        if number is not None:
            return number
        first, second = self.ranks[one], self.ranks[other]
        if first & second or not first or not second:
            return 0
        number = self._numbers[operands] = len(self.ranks)
        self.ranks.append(first | second)
        self._operands.append(operands)
        return number

    def text(self, number: int, limit: int = 60) -> str:
        """Write a sum with its brackets: ``((0+1)+2)``; what is longer than `limit` characters is cut."""
        parts: list[str] = []
        stack: list[int | str] = [number]
        while stack and sum(map(len, parts)) <= limit:
            top = stack.pop()
            if isinstance(top, str):
                parts.append(top)
            elif top < self._leaves:
                parts.append(str(top - 1) if top else "undefined")
            else:
                one, other = self._operands[top - self._leaves]
                stack += [")", other, "+", one, "("]
        text = "".join(parts)
        return text if not stack and len(text) <= limit else f"{text[:limit]}..."


def aligned(own: list[Piece], others: list[Piece]) -> Iterator[tuple[int, Value, Value]]:
    """Pair two lists of pieces over one interval: where each stretch without a change begins, and both values."""
    mine = theirs = 0
    at: float = own[0][0]
    while at < math.inf:
        yield int(at), own[mine][1], others[theirs][1]
        my_end = own[mine + 1][0] if mine + 1 < len(own) else math.inf
        their_end = others[theirs + 1][0] if theirs + 1 < len(others) else math.inf
        at = min(my_end, their_end)
        mine += my_end == at
        theirs += their_end == at


class Memory:
    """One rank's buffer.

    Args:
        length: Number of elements.
        held: Where the rank's own input lies.
        number: The number of that input in `Sums`.
    """

    def __init__(self, length: int, held: Interval, number: int) -> None:
        self.length = length
        self._starts = [0]
        self._values = [UNDEFINED]
        if held[0] < held[1]:
            self.write(*held, [(held[0], (number, 0))])

    def read(self, start: int, stop: int) -> list[Piece]:
        """Give what a non-empty interval holds."""
        starts, values = self._starts, self._values
        first = bisect_right(starts, start) - 1
        last = bisect_left(starts, stop, first + 1)
        pieces = [(start, values[first])]
        if last > first + 1:
            pieces += zip(starts[first + 1 : last], values[first + 1 : last], strict=True)
        return pieces

    def write(self, start: int, stop: int, pieces: list[Piece]) -> None:
        """Overwrite a non-empty interval; the first piece must begin at its start."""
        starts, values = self._starts, self._values
        first = bisect_left(starts, start)
        last = bisect_left(starts, stop, first)
        behind = starts[last] if last < len(starts) else self.length
        if stop == behind and last == first + 1 and starts[first] == start and len(pieces) == 1:
            values[first] = pieces[0][1]
            return
        if stop < behind:
            pieces = [*pieces, (stop, values[last - 1])]
        starts[first:last] = [position for position, _ in pieces]
        values[first:last] = [value for _, value in pieces]

    def merged(self) -> list[Piece]:
        """Give all pieces, with equal neighbours as one."""
        pieces: list[Piece] = []
        for position, value in zip(self._starts, self._values, strict=True):
            if not pieces or pieces[-1][1] != value:
                pieces.append((position, value))
        return pieces
