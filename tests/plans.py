"""Results that nobody measured, made from the cost model, for planning."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hpccomm.algorithms import find
from hpccomm.bench.compare import Recorded
from hpccomm.cost import Fabric, Link
from hpccomm.plan import observations
from hpccomm.plan.fitted import Fit
from hpccomm.plan.fitting import fit
from hpccomm.plan.observations import composed
from hpccomm.plan.pricing import seconds

INTRA, INTER, LIMIT, GAMMA = Link(3e-6, 1.3e-10), Link(2e-5, 1e-9), 2e9, 2e-10
FLAT = ("ring", "tree", "halving_doubling")
NESTED = "hierarchical(ring(mpi4py), ring(mpi4py))"
SIZES = (1 << 10, 1 << 14, 1 << 18, 1 << 22)
NOISE = 0.05


def fabric(num_nodes: int, per_node: int, *, limit: float = LIMIT, gamma: float = 0.0) -> Fabric:
    return Fabric(tuple(rank // per_node for rank in range(num_nodes * per_node)), INTRA, INTER, gamma, limit)


def algorithm(expression: str, nodes: tuple[int, ...]):
    return composed(nodes, "ring", "ring") if expression == NESTED else find(expression.partition("(")[0])


def row(expression: str, size: int, time_us: float, on: Fabric, **changed: Any) -> dict[str, Any]:
    named = None if expression == NESTED else expression.partition("(")[0]
    what = {"collective": "all_reduce", "place": "in", "dtype": "float32", "op": "sum", "ranks": on.size}
    measured = {"backend": expression, "algorithm": named, "size_bytes": size, "time_us_median": time_us}
    return {**what, **measured, **changed}


def run(on: Fabric, *, collectives: Iterable[str] = ("all_reduce",), noise: float = NOISE) -> Recorded:
    """Make a run's results from the cost model, each time off by up to `noise`."""
    draw, rows = random.Random(f"{on.nodes}"), []
    expressions = [f"{name}(mpi4py)" for name in FLAT] + [NESTED] * (1 < len({*on.nodes}) < on.size)
    for collective in collectives:
        for expression in expressions:
            runs = algorithm(expression, on.nodes)
            if collective not in runs.collectives:
                continue
            for size in SIZES:
                time_s = seconds(runs, collective, size // 4, itemsize=4, fabric=on)
                time_us = time_s * 1e6 * draw.uniform(1 - noise, 1 + noise)
                rows.append(row(expression, size, time_us, on, collective=collective))
    return Recorded(f"{len({*on.nodes})} nodes", {"node_of_rank": list(on.nodes)}, rows)


def fitted(*runs: Recorded) -> Fit:
    return fit(observations.read(runs, None)[0])


def write(folder: Path, runs: Iterable[Recorded]) -> list[str]:
    paths = []
    for number, one in enumerate(runs):
        path = folder / f"{number}.json"
        path.write_text(json.dumps({"environment": one.environment, "results": one.results}))
        paths.append(str(path))
    return paths
