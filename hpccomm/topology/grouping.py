"""Numbering, grouping and listing of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby

Groups = tuple[tuple[int, ...], ...]


def numbered(keys: Iterable[Hashable]) -> tuple[int, ...]:
    """Number keys by first appearance."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(key, len(numbers)) for key in keys)


def grouped(numbers: Sequence[int]) -> Groups:
    """Give the ranks that hold each number, ascending; the numbers are 0 up to the largest."""
    groups: list[list[int]] = [[] for _ in {*numbers}]
    for rank, number in enumerate(numbers):
        groups[number].append(rank)
    return tuple(map(tuple, groups))


def ranges(ranks: Sequence[int]) -> str:
    """Write ranks as runs: ``0-3,8``."""
    runs = [[rank for _, rank in run] for _, run in groupby(enumerate(ranks), lambda pair: pair[1] - pair[0])]
    return listed([f"{run[0]}-{run[-1]}" if run[1:] else f"{run[0]}" for run in runs], ",")


def sizes_text(sizes: Sequence[int]) -> str:
    """Write group sizes as a sum: ``3 + 1``, or ``10 x 4 + 1 x 2`` where there are many."""
    terms = [f"{count} x {size}" for size, count in sorted(Counter(sizes).items(), reverse=True)]
    return listed(terms if len(sizes) > 8 else [str(size) for size in sizes], " + ")


def listed(parts: list[str], separator: str = ", ", limit: int = 8) -> str:
    """Join parts, leaving out the middle of long lists."""
    return separator.join(parts if len(parts) <= limit else [*parts[:3], "...", parts[-1]])


def count(number: int, noun: str) -> str:
    """Write a number with its noun: ``1 rank``, ``2 ranks``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
