"""How many bytes a rank sends to each other rank in one call of a backend, for traces.

A message goes where it is sent. What a library's collective sends to whom is its own affair; it is counted as if every
block went straight to its taker, which is the least that must reach it: an all-reduce as a reduce-scatter, of which
every rank takes a share, and an all-gather of the shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MESSAGES = frozenset({"send", "recv", "recv_any"})


def sent(name: str, rank: int, size: int, arguments: Sequence[Any]) -> Mapping[int, int]:
    """Give the bytes for each other rank of the group that gets any.

    Args:
        name: The method of `Backend`.
        rank: This rank.
        size: The number of ranks.
        arguments: What the method is given.
    """
    found = _of(name, rank, size, *arguments)
    return {other: count for other, count in found.items() if other != rank and count}


def _of(name: str, rank: int, size: int, first: Any = None, second: Any = None, third: Any = None, *_: Any) -> Any:
    everyone = range(size)
    match name:
        case "send":
            return {second: first.nbytes}
        case "all_reduce":
            share, rest = divmod(first.numel(), size)
            blocks = [(share + (other < rest)) * first.element_size() for other in everyone]
            return {other: blocks[other] + blocks[rank] for other in everyone}
        case "reduce_scatter":
            counts = (_[0] if _ else None) or [first.numel()] * size
            return {other: counts[other] * first.element_size() for other in everyone}
        case "all_gather":
            return dict.fromkeys(everyone, second.nbytes)
        case "all_to_all":
            return {other: third[other] * second.element_size() for other in everyone}
        case "broadcast":
            return dict.fromkeys(everyone, first.nbytes) if second == rank else {}
        case "reduce":
            return {third: first.nbytes}
        case "gather":
            return {third: second.nbytes}
        case "scatter":
            return dict.fromkeys(everyone, first.nbytes) if third == rank else {}
    return {}
