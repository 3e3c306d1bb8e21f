"""Measure the pairs of a run over one backend within a budget, show and record them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hpccomm.bench.candidates import Candidate
from hpccomm.bench.measure import make_barrier
from hpccomm.bench.pairs import heat, outliers
from hpccomm.bench.pairs.matrix import Edge, Matrix
from hpccomm.bench.pairs.play import Player
from hpccomm.bench.pairs.tournament import Round, rounds
from hpccomm.bench.series import Run

ITERATIONS = 5


def chosen(run: Run, built: Sequence[Candidate]) -> list[Candidate]:
    """Give the backends whose pairs are measured: those that the user named, else the first one."""
    if run.options.pairs_bytes is None or run.world.topology.world_size < 2:
        return []
    return [candidate for candidate in built if candidate.required] or list(built[:1])


def measure(run: Run, candidate: Candidate, budget_s: float) -> Matrix:
    """Measure, show and record all pairs over one backend; collective.

    Args:
        run: What all tables share; `pairs_bytes` is given.
        candidate: The backend.
        budget_s: Seconds in which another round may begin; the first one always does.
    """
    turns, total = rounds(run.world.topology.hosts)
    edges, played, error = _play(run, candidate, turns, budget_s)
    matrix = _matrix(run, candidate, edges, (played, total), error)
    found = outliers.find(matrix)
    screen = run.screen
    with screen.lock:
        slow = [one.entries() for one in found]
        run.record.add_section("pairs", {**matrix.entries(), "rule": outliers.RULE, "slow": slow})
        screen.say(heat.lines(matrix, found, colours=screen.bold))
    return matrix


def _play(
    run: Run, candidate: Candidate, turns: Sequence[Round], budget_s: float
) -> tuple[list[Edge], int, str | None]:
    """Give the edges, how many rounds were played, and what failed."""
    exchange, options = run.world.exchange, run.options
    assert options.pairs_bytes is not None
    barrier = make_barrier(exchange, crowded=run.world.crowded)
    player = Player(
        exchange,
        barrier,
        candidate.group,
        message_bytes=options.pairs_bytes,
        iterations=options.iterations or ITERATIONS,
    )
    edges: list[Edge] = []
    error, end, longest_s = candidate.dropped, time.monotonic() + budget_s, 0.0
    for number, turn in enumerate(turns):
        if error or (number and not exchange.all_gather(time.monotonic() + longest_s <= end)[0]):
            return edges, number, error
        run.screen.progress.step(f"pairs over {candidate.expression}: round {number + 1} of {len(turns)}")
        begun = time.monotonic()
        more, error = player.play(turn)
        longest_s = max(longest_s, time.monotonic() - begun)
        edges += more
    return edges, len(turns), error


def _matrix(
    run: Run, candidate: Candidate, edges: Sequence[Edge], rounds: tuple[int, int], error: str | None
) -> Matrix:
    topology, options = run.world.topology, run.options
    assert options.pairs_bytes is not None
    return Matrix(
        backend=candidate.expression,
        message_bytes=options.pairs_bytes,
        iterations=options.iterations or ITERATIONS,
        hosts=topology.hosts,
        hostnames=topology.hostnames,
        oversubscribed=bool(run.record.environment.get("oversubscribed")),
        rounds=rounds[0],
        all_rounds=rounds[1],
        edges=tuple(sorted(edges, key=lambda edge: (edge.source, edge.dest))),
        error=error,
    )
