"""What a fit gives: links, how sure they are, and the rows that they were fitted to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from hpccomm.cost import Fabric, Link
from hpccomm.errors import OptionError
from hpccomm.plan.observations import Observation

HIDDEN = "hidden by those between nodes in all rows"


@dataclass(frozen=True)
class Range:
    """From the smallest to the largest that was measured."""

    least: int
    most: int

    def __contains__(self, value: int) -> bool:
        return self.least <= value <= self.most


@dataclass(frozen=True)
class Residual:
    """One row: what was measured and what the fitted links give."""

    observation: Observation
    predicted_s: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted_s / self.observation.seconds - 1


@dataclass(frozen=True)
class Fit:
    """Links and their evidence.

    Attributes:
        intra: Inside a node; None where no node had two ranks.
        hides_intra: Whether the links between nodes hide `intra`: it is too fast for the rows to tell its figures.
        inter: Between nodes; None where there was one node.
        injection_bytes_per_s: Of a node; infinite where no limit shows.
        gamma_s_per_byte: Of reductions; 0 where the rows cannot tell it from beta, which then holds it.
        errors: Standard error of each figure over the figure, by name.
        residuals: All rows.
    """

    intra: Link | None
    hides_intra: bool
    inter: Link | None
    injection_bytes_per_s: float
    gamma_s_per_byte: float
    errors: dict[str, float]
    residuals: tuple[Residual, ...]

    @cached_property
    def _observations(self) -> list[Observation]:
        return [residual.observation for residual in self.residuals]

    @cached_property
    def ranks(self) -> Range:
        """Numbers of ranks that were measured."""
        return _range(len(one.nodes) for one in self._observations)

    @cached_property
    def nodes(self) -> Range:
        """Numbers of nodes that were measured."""
        return _range(len({*one.nodes}) for one in self._observations)

    @cached_property
    def ranks_per_node(self) -> Range:
        """Sizes of nodes that were measured between nodes, or of the one node."""
        return _range(largest_node(one) for one in of_several_nodes(self._observations) or self._observations)

    @cached_property
    def sizes(self) -> Range:
        """Bytes that were measured."""
        return _range(one.nbytes for one in self._observations)

    def fewest_nodes(self, ranks_per_node: int) -> int:
        """Give the number of nodes of so many ranks below which a hidden link inside them may show."""
        return self.nodes.least if self.hides_intra and ranks_per_node > 1 else 1

    def fabric(self, num_nodes: int, ranks_per_node: int) -> Fabric:
        """Describe so many nodes with these links.

        Raises:
            OptionError: A link that is needed was not measured, or may show there while it is hidden in the rows.
        """
        intra, inter = self.intra, self.inter
        asked = f"plan for {num_nodes} nodes of {ranks_per_node} ranks"
        if ranks_per_node > 1 and intra is None:
            raise OptionError(asked, found="no node had two ranks in the results", remedy="add results of one node")
        if num_nodes > 1 and inter is None:
            raise OptionError(asked, found="the results are of one node", remedy="add results of two nodes or more")
        if num_nodes > 1 and ranks_per_node > 1 and self.ranks_per_node.most < 2:
            found = "one rank a node in the results, which do not tell what a node's ranks share"
            raise OptionError(asked, found=found, remedy="add results of two nodes or more with all their ranks")
        is_larger = self.hides_intra and ranks_per_node > self.ranks_per_node.most
        if num_nodes < self.fewest_nodes(ranks_per_node) or is_larger:
            remedy = "add results of one node with all of its ranks"
            raise OptionError(asked, found=f"the link inside nodes is {HIDDEN}", remedy=remedy)
        nodes = tuple(rank // ranks_per_node for rank in range(num_nodes * ranks_per_node))
        link = intra or inter
        assert link is not None
        return Fabric(nodes, intra or link, inter or link, self.gamma_s_per_byte, self.injection_bytes_per_s)


def of_several_nodes(observations: Sequence[Observation]) -> list[Observation]:
    """Give the rows of several nodes."""
    return [one for one in observations if len({*one.nodes}) > 1]


def largest_node(one: Observation) -> int:
    """Give the ranks of the largest node of a row."""
    return max(map(one.nodes.count, {*one.nodes}))


def _range(values: Iterable[int]) -> Range:
    found = list(values)
    return Range(min(found), max(found))
