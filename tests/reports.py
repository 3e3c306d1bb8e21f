"""Results that nobody measured, as the benchmark would write them, for reports."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.compare import Recorded
from hpccomm.bench.files import results
from hpccomm.bench.metrics import Times
from hpccomm.bench.pairs.matrix import Matrix
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.tables import Table
from matrices import Hosts

NASTY = "<script>alert('x')</script>&\"$\\frac${{7*7}}\u2028"
SIZES = tuple(4**power for power in range(1, 13))
MODELS: Mapping[str, tuple[float, float]] = {
    "mpi4py": (10.0, 1.2e-3),
    "gloo": (80.0, 1.3e-3),
    "hierarchical(mpi4py, gloo)": (60.0, 0.4e-3),
}
"""Microseconds of any message and of a byte: mpi4py is the best below, the hierarchy above 62.5 kB."""

Model = Callable[[str, int], float]


def linear(backend: str, size: int) -> float:
    start_us, byte_us = MODELS[backend]
    return start_us + byte_us * size


def rows_of(
    hosts: Hosts, collective: str = "all_reduce", *, backends: Sequence[str] = tuple(MODELS), model: Model = linear
) -> list[dict[str, Any]]:
    """Give the results of one table; all repetitions took about the same."""
    made = COLLECTIVES[collective]
    table = Table(made, len(hosts), "float32", "sum" if made.reduces else None, next(iter(made.places), None))

    def cell(backend: str, size: int) -> Cell:
        time_us = model(backend, size)
        return Cell(backend, State.MEASURED, Times(5, time_us, time_us, *[1.1 * time_us] * 3, 1.0), 0)

    sizes = SIZES if made.has_data else (0,)
    return [one for size in sizes for one in results(Row(size, tuple(cell(name, size) for name in backends)), table)]


def recorded(
    hosts: Hosts,
    rows: Sequence[Mapping[str, Any]] | None = None,
    *,
    matrices: Sequence[Matrix] = (),
    names: Sequence[str] = (),
    sections: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    **changed: Any,
) -> Recorded:
    """Give a run on hosts of four cores each; `changed` are entries of the environment."""
    numbers = sorted({*hosts})
    named = [{"name": names[n] if names else f"node{n + 1}", "ranks": hosts.count(n), "cores": 4} for n in numbers]
    environment = {
        "command_line": "python -m hpccomm.bench",
        "ranks": len(hosts),
        "nodes": len(numbers),
        "topology": f"{len(hosts)} ranks",
        "node_of_rank": hosts,
        "host_of_rank": hosts,
        "hosts": named,
        "placement": "1 core a rank, not shared",
        "launcher": "Open MPI 5's mpirun",
        "mpi": "Open MPI 5.0.11, thread level multiple",
        "torch": "2.14.1",
        "hpccomm": "0.1.0",
        "date": "2026-11-30T12:00:00+00:00",
        "not_built": {},
        **changed,
    }
    pairs = [matrix.entries() for matrix in matrices]
    content = [environment, rows_of(hosts) if rows is None else rows, pairs, True, sections or {}]
    return Recorded("made.json", *json.loads(json.dumps(content)))
