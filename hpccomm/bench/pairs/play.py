"""Play the rounds of a tournament: all pairs of a round at once, each direction for itself, every message checked.

Every rank comes to every barrier and exchange here whatever fails in between. The one that answers says when it is
ready, so that a time begins with both ranks there.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist

from hpccomm.bench import inputs
from hpccomm.bench.measure import Barrier, error_of
from hpccomm.bench.pairs.matrix import LATENCY_BYTES, Edge
from hpccomm.bench.pairs.tournament import Round
from hpccomm.bench.verdict import cause
from hpccomm.errors import HpccommError
from hpccomm.exchange import Exchange

_WARM_UP = 2
_SMALL_PER_LARGE = 4


@dataclass
class _Seen:
    """What one rank saw in a round: its edge, if it began one, what was wrong with what it received, what failed."""

    edges: list[Edge]
    wrong: Counter[tuple[int, int]]
    error: HpccommError | None = None


class Player:
    """This rank in a tournament, together with all others.

    Args:
        exchange: Reaches all ranks.
        barrier: Waits for all ranks.
        group: The torch group of the backend.
        message_bytes: Size of a large message.
        iterations: Large messages that are timed; there are `_SMALL_PER_LARGE` times as many small ones.
    """

    def __init__(
        self, exchange: Exchange, barrier: Barrier, group: Any, *, message_bytes: int, iterations: int
    ) -> None:
        self._exchange, self._barrier, self._group = exchange, barrier, group
        self._iterations, self._rank = iterations, exchange.rank
        self._patterns = inputs.integers(None, exchange.size, inputs.Range.of(torch.uint8))
        self._sent = {size: self._filled(self._rank, size) for size in (LATENCY_BYTES, message_bytes)}
        self._large = message_bytes

    def play(self, turn: Round) -> tuple[list[Edge], str | None]:
        """Play one round; collective.

        Returns:
            The edges of all ranks, and what failed, if anything did; the same on all ranks.
        """
        seen = _Seen([], Counter())
        mine = next((pair for pair in turn if self._rank in pair), None)
        for first in (0, 1):
            self._barrier()
            if mine is not None and seen.error is None:
                seen.error = error_of(self._meet, mine[first], mine[1 - first], seen)
        gathered = self._exchange.all_gather(seen)
        errors = {rank: one.error for rank, one in enumerate(gathered) if one.error is not None}
        return _checked(gathered), cause(errors, len(gathered)) if errors else None

    def _meet(self, source: int, dest: int, seen: _Seen) -> None:
        """Measure one direction; `seen` gets what came of it."""
        if self._rank == source:
            latency_us = statistics.median(self._ask(dest, LATENCY_BYTES, seen)) / 2
            large_us = statistics.median(self._ask(dest, self._large, seen))
            seen.edges.append(Edge(source, dest, latency_us, self._large / large_us / 1e3))
        else:
            self._answer(source, LATENCY_BYTES, seen)
            self._answer(source, self._large, seen)

    def _ask(self, dest: int, size: int, seen: _Seen) -> list[float]:
        """Send messages of a size, wait for the small answer to each, and give the times in microseconds."""
        answer, times_us = self._filled(dest, LATENCY_BYTES), []
        for number in range(self._calls(size)):
            dist.recv(answer, dest, self._group)  # it is ready
            inputs.fill(answer, self._patterns[dest] + 1)
            start = time.perf_counter()
            dist.send(self._sent[size], dest, self._group)
            dist.recv(answer, dest, self._group)
            if number >= _WARM_UP:
                times_us.append((time.perf_counter() - start) * 1e6)
            self._check(answer, dest, (self._rank, dest), seen)
        return times_us

    def _answer(self, source: int, size: int, seen: _Seen) -> None:
        received = self._filled(source, size)
        for _ in range(self._calls(size)):
            inputs.fill(received, self._patterns[source] + 1)
            dist.send(self._sent[LATENCY_BYTES], source, self._group)
            dist.recv(received, source, self._group)
            dist.send(self._sent[LATENCY_BYTES], source, self._group)
            self._check(received, source, (source, self._rank), seen)

    def _calls(self, size: int) -> int:
        return _WARM_UP + self._iterations * (_SMALL_PER_LARGE if size == LATENCY_BYTES else 1)

    def _filled(self, rank: int, size: int) -> torch.Tensor:
        tensor = torch.empty(size, dtype=torch.uint8)
        inputs.fill(tensor, self._patterns[rank])
        return tensor

    def _check(self, tensor: torch.Tensor, sender: int, edge: tuple[int, int], seen: _Seen) -> None:
        seen.wrong[edge] += inputs.count_different(tensor, self._patterns[sender])


def _checked(gathered: Sequence[_Seen]) -> list[Edge]:
    """Give all ranks' edges with what both ends found wrong; an edge with anything wrong has no number."""
    wrong = sum((Counter(seen.wrong) for seen in gathered), Counter[tuple[int, int]]())
    return [
        replace(edge, latency_us=None, gbps=None, wrong=count) if (count := wrong[edge.source, edge.dest]) else edge
        for seen in gathered
        for edge in seen.edges
    ]
