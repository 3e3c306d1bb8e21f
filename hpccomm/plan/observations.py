"""From the benchmark's results to what a fit is made of: measured times of schedules that are known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from hpccomm.algorithms import ALGORITHMS, Algorithm, serving
from hpccomm.algorithms.hierarchical import hierarchical
from hpccomm.bench.collectives import COLLECTIVES, OUT
from hpccomm.bench.compare import Recorded
from hpccomm.bench.files import Result
from hpccomm.errors import HpccommError, OptionError
from hpccomm.expression import Expression, parse
from hpccomm.topology import Topology

_ITEMSIZES = {"float32": 4, "float64": 8, "int32": 4, "int64": 8}
_MEASURE = (
    "measure algorithms over one carrier, on one node and on several: mpirun ... python -m hpccomm.bench "
    '--algorithm ring tree halving_doubling --backend "hierarchical(ring(mpi4py), ring(mpi4py))" --json FILE'
)


@dataclass(frozen=True)
class Observation:
    """One measured row.

    Attributes:
        file: Where it stands.
        backend: The backend's expression.
        carrier: The backend that moved the messages.
        algorithm: The schedules that ran.
        collective: Which collective.
        nodes: Node of each rank.
        count: Elements of the whole buffer.
        itemsize: Bytes of an element.
        seconds: Median time.
    """

    file: str
    backend: str
    carrier: str
    algorithm: Algorithm
    collective: str
    nodes: tuple[int, ...]
    count: int
    itemsize: int
    seconds: float

    @property
    def nbytes(self) -> int:
        """Bytes of the whole buffer."""
        return self.count * self.itemsize


class _LeftOutError(Exception):
    """A row says nothing of links; the argument says why."""


def read(runs: Iterable[Recorded], carrier: str | None) -> tuple[list[Observation], Counter[str]]:
    """Find the rows whose schedules are known.

    Args:
        runs: The benchmark's files.
        carrier: The leaf backend whose rows count; None for the only one there is.

    Returns:
        The rows, and why others were left out with how many they are.

    Raises:
        OptionError: No row is left, or there are several carriers and none is named, or a file lacks the ranks' nodes.
    """
    found: list[Observation] = []
    left_out: Counter[str] = Counter()
    for run in runs:
        nodes = _nodes(run)
        for row in run.results:
            try:
                found.append(_observed(run.name, row, nodes))
            except _LeftOutError as reason:
                left_out[str(reason)] += 1
    carriers = sorted({one.carrier for one in found})
    if carrier is None and len(carriers) > 1:
        remedy = "name one of them with --carrier"
        raise OptionError("fit links to measured times", found=f"messages over {' and '.join(carriers)}", remedy=remedy)
    chosen = [one for one in found if carrier in (None, one.carrier)]
    if not chosen:
        reasons = [f"{number} rows left out: {reason}" for reason, number in left_out.items()]
        reasons += [f"there are rows over {' and '.join(carriers)}"] if carriers else []
        over = f" over {carrier}" if carrier else ""
        raise OptionError(f"fit links to measured times{over}", found="; ".join(reasons) or "no rows", remedy=_MEASURE)
    left_out.update({f"over another carrier than {carrier}": len(found) - len(chosen)})
    return chosen, +left_out


def composed(nodes: tuple[int, ...], intra: str, inter: str) -> Algorithm:
    """Give the all-reduce of ``hierarchical(intra(x), inter(x))``; ScheduleError where there is none in one buffer."""
    return hierarchical(nodes, intra=serving(intra, "reduce_scatter"), inter=serving(inter, "all_reduce"))


def _nodes(run: Recorded) -> tuple[int, ...]:
    found = run.environment.get("node_of_rank")
    if not (isinstance(found, list) and found and all(isinstance(node, int) for node in found)):
        asked, remedy = f"fit links to {run.name}", "measure again with this version's --json"
        raise OptionError(asked, found="it does not say on which nodes the ranks were (node_of_rank)", remedy=remedy)
    return tuple(found)


def _observed(file: str, row: Result, nodes: tuple[int, ...]) -> Observation:
    time_us: Any = row["time_us_median"]
    if not time_us or row.get("fell_back"):
        raise _LeftOutError("failed or wrong, or carried by another backend in the end")
    if row["ranks"] != len(nodes) or row["ranks"] < 2:
        raise _LeftOutError("one rank, or another number of ranks than the run's")
    collective = row["collective"]
    if collective not in COLLECTIVES:
        raise _LeftOutError("many calls in one time")
    itemsize = 4 if collective == "barrier" else _ITEMSIZES.get(row["dtype"])
    if itemsize is None:
        raise _LeftOutError("elements that may travel in a wider type; measure float32")
    if row["place"] == OUT and COLLECTIVES[collective].copies:
        raise _LeftOutError("out of place, so that a copy is timed, too")
    backend = parse(row["backend"])
    algorithm, carrier = _algorithm(backend, collective, nodes), _carrier(backend)
    count = max(1, row["size_bytes"] // itemsize)
    return Observation(file, row["backend"], carrier, algorithm, collective, nodes, count, itemsize, time_us / 1e6)


def _algorithm(backend: Expression, collective: str, nodes: tuple[int, ...]) -> Algorithm:
    """Give the schedules that a backend runs."""
    name, levels, options = backend.name, [level.name for level in backend.arguments], backend.keywords
    is_nested = name == "hierarchical" and set(levels) <= ALGORITHMS.keys() and set(options) <= {"by"}
    try:
        if name in ALGORITHMS and len(levels) == 1 and collective not in ("sendrecv", "barrier"):
            return serving("pairwise" if options.get("shots") == 2 else name, collective)
        if is_nested and collective == "all_reduce":
            return composed(_grouped(nodes, options.get("by", "node")), *levels)
    except HpccommError as error:
        raise _LeftOutError(error.found) from None
    raise _LeftOutError("a library chooses the schedule, or several run")


def _grouped(nodes: tuple[int, ...], by: Any) -> tuple[int, ...]:
    return Topology(0, nodes, nodes, tuple(map(str, range(len({*nodes}))))).by(by).nodes


def _carrier(backend: Expression) -> str:
    leaves = set(_leaves(backend))
    if len(leaves) > 1:
        raise _LeftOutError("levels with carriers of their own")
    return leaves.pop()


def _leaves(backend: Expression) -> Iterator[str]:
    if not backend.arguments:
        yield str(backend)
    for argument in backend.arguments:
        yield from _leaves(argument)
