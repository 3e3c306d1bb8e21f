"""Predicted times of every algorithm over sizes and numbers of nodes, with the best of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from hpccomm.algorithms import ALGORITHMS, Algorithm
from hpccomm.cost import Fabric
from hpccomm.plan.fitted import Fit
from hpccomm.plan.observations import composed
from hpccomm.plan.pricing import SIMULATED_RANKS, seconds

HIERARCHIES = tuple(
    (intra, inter)
    for intra in ("ring", "halving_doubling")
    for inter in ("ring", "tree", "halving_doubling", "recursive_doubling")
)
"""Algorithms inside and between nodes whose all-reduce is planned."""

ITEMSIZE = 4


@dataclass(frozen=True)
class Cell:
    """One size on one number of nodes.

    Attributes:
        num_nodes: Number of nodes.
        nbytes: Bytes of the whole buffer.
        times_s: Seconds of each algorithm by name, hierarchies only where there are both levels.
        extrapolated: What lies outside what was measured: ``ranks``, ``nodes``, ``ranks per node``, ``size``.
    """

    num_nodes: int
    nbytes: int
    times_s: Mapping[str, float]
    extrapolated: tuple[str, ...]

    @property
    def best(self) -> str:
        """The algorithm that takes least."""
        return min(self.times_s, key=self.times_s.__getitem__)


@dataclass(frozen=True)
class Outlook:
    """All cells of one collective, by size and then by nodes, both ascending."""

    collective: str
    ranks_per_node: int
    nodes: Sequence[int]
    sizes: Sequence[int]
    cells: Sequence[Cell]

    def at(self, num_nodes: int) -> list[Cell]:
        """Give the cells of one number of nodes."""
        return [cell for cell in self.cells if cell.num_nodes == num_nodes]

    @property
    def names(self) -> list[str]:
        """All algorithms."""
        return list(dict.fromkeys(name for cell in self.cells for name in cell.times_s))


def outlook(fit: Fit, collective: str, *, num_nodes: int, ranks_per_node: int, sizes: Sequence[int]) -> Outlook:
    """Predict at the powers of two of nodes that the fit tells of up to the number asked for, and there, alike.

    Raises:
        OptionError: A link that is needed was not measured.
    """
    fewest = fit.fewest_nodes(ranks_per_node)
    powers = [1 << power for power in range((num_nodes - 1).bit_length())]
    nodes = [*(number for number in powers if number >= fewest), num_nodes]
    nodes = [number for number in nodes if number * ranks_per_node > 1]
    simulated = SIMULATED_RANKS if num_nodes * ranks_per_node <= SIMULATED_RANKS else 0
    columns = [_column(fit, collective, fit.fabric(number, ranks_per_node), sizes, simulated) for number in nodes]
    return Outlook(collective, ranks_per_node, nodes, sizes, [cell for column in columns for cell in column])


def backend(name: str, carrier: str) -> str:
    """Give the backend expression of an algorithm's name.

    >>> backend("hierarchical(ring, tree)", "mpi4py"), backend("ring", "gloo")
    ('hierarchical(ring(mpi4py), tree(mpi4py))', 'ring(gloo)')
    """
    head, bracket, levels = name.removesuffix(")").partition("(")
    inside = ", ".join(f"{level}({carrier})" for level in levels.split(", "))
    return f"{head}({inside})" if bracket else f"{name}({carrier})"


def _column(fit: Fit, collective: str, fabric: Fabric, sizes: Sequence[int], simulated: int) -> Iterator[Cell]:
    algorithms = list(_algorithms(collective, fabric.nodes))
    num_nodes = fabric.nodes[-1] + 1
    for nbytes in sizes:
        times = {
            algorithm.name: seconds(
                algorithm,
                collective,
                max(1, nbytes // ITEMSIZE),
                itemsize=ITEMSIZE,
                fabric=fabric,
                simulated_ranks=simulated,
            )
            for algorithm in algorithms
        }
        yield Cell(num_nodes, nbytes, times, tuple(_outside(fit, num_nodes, fabric.size, nbytes)))


def _algorithms(collective: str, nodes: tuple[int, ...]) -> Iterator[Algorithm]:
    yield from (algorithm for algorithm in ALGORITHMS.values() if collective in algorithm.collectives)
    if collective == "all_reduce" and 1 < nodes[-1] + 1 < len(nodes):
        yield from (composed(nodes, intra, inter) for intra, inter in HIERARCHIES)


def _outside(fit: Fit, num_nodes: int, ranks: int, nbytes: int) -> Iterator[str]:
    values = (ranks, num_nodes, ranks // num_nodes, nbytes)
    ranges = (fit.ranks, fit.nodes, fit.ranks_per_node, fit.sizes)
    for name, value, measured in zip(("ranks", "nodes", "ranks per node", "size"), values, ranges, strict=True):
        if value not in measured:
            yield name
