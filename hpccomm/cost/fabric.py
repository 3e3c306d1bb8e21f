"""The machine's description: links, who is on which node, and a link's two figures from measured times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from hpccomm.errors import OptionError


@dataclass(frozen=True)
class Link:
    """What carries a message from one rank to another.

    Attributes:
        alpha_s: Seconds that a message takes however short it is.
        beta_s_per_byte: Seconds for each byte more.

    Raises:
        OptionError: One of them is negative, infinite or no number.
    """

    alpha_s: float
    beta_s_per_byte: float

    def __post_init__(self) -> None:
        _check("alpha_s", self.alpha_s, 0 <= self.alpha_s < math.inf)
        _check("beta_s_per_byte", self.beta_s_per_byte, 0 <= self.beta_s_per_byte < math.inf)

    def seconds(self, nbytes: float) -> float:
        """Give the time of one message of so many bytes."""
        return self.alpha_s + nbytes * self.beta_s_per_byte


@dataclass(frozen=True)
class Fabric:
    """All links among the ranks.

    Attributes:
        nodes: Node of each rank.
        intra: Between two ranks of one node.
        inter: Between ranks of two nodes.
        gamma_s_per_byte: Seconds to reduce one received byte into the buffer.
        injection_bytes_per_s: What one node can send to others, all its ranks together; messages queue for it.

    Raises:
        OptionError: A negative gamma, or a limit that is not above zero.
    """

    nodes: tuple[int, ...]
    intra: Link
    inter: Link
    gamma_s_per_byte: float = 0.0
    injection_bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        _check("gamma_s_per_byte", self.gamma_s_per_byte, 0 <= self.gamma_s_per_byte < math.inf)
        _check("injection_bytes_per_s", self.injection_bytes_per_s, self.injection_bytes_per_s > 0)

    @classmethod
    def uniform(cls, size: int, link: Link, *, gamma_s_per_byte: float = 0.0) -> Fabric:
        """Describe so many ranks with the same link between any two of them."""
        return cls((0,) * size, link, link, gamma_s_per_byte)

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.nodes)

    @property
    def is_uniform(self) -> bool:
        """Whether all pairs of ranks are alike at any time."""
        one_node = len(set(self.nodes)) <= 1
        return one_node or (self.intra == self.inter and self.injection_bytes_per_s == math.inf)

    def crosses(self, source: int, dest: int) -> bool:
        """Tell whether two ranks are on different nodes."""
        return self.nodes[source] != self.nodes[dest]

    def link(self, source: int, dest: int) -> Link:
        """Give the link from one rank to another."""
        return self.inter if self.crosses(source, dest) else self.intra


def fit(samples: Iterable[tuple[int, float]]) -> Link:
    """Find the link that explains measured times best.

    Minimised is the sum of the squared relative errors, so that the short messages, which say what alpha
    is, count as much as the long ones. Neither figure comes out negative.

    Args:
        samples: Pairs of a message's bytes and its seconds.

    Raises:
        OptionError: Fewer than two different sizes, or a size below 0 or a time that is not above 0.
    """
    points = list(samples)
    asked = f"fit a link to {len(points)} samples"
    if any(nbytes < 0 or not 0 < seconds < math.inf for nbytes, seconds in points):
        raise OptionError(asked, found="a size or time that cannot be", remedy="give bytes >= 0 and seconds > 0")
    if len({nbytes for nbytes, _ in points}) < 2:
        raise OptionError(asked, found="fewer than two different sizes", remedy="measure short and long messages")
    weighted = [(nbytes, seconds, 1 / seconds**2) for nbytes, seconds in points]
    total = math.fsum(weight for _, _, weight in weighted)
    mean_bytes = math.fsum(weight * nbytes for nbytes, _, weight in weighted) / total
    mean_seconds = math.fsum(weight * seconds for _, seconds, weight in weighted) / total
    variance = math.fsum(weight * (nbytes - mean_bytes) ** 2 for nbytes, _, weight in weighted)
    covariance = math.fsum(
        weight * (nbytes - mean_bytes) * (seconds - mean_seconds) for nbytes, seconds, weight in weighted
    )
    beta = max(0.0, covariance / variance)
    alpha = mean_seconds - beta * mean_bytes
    if alpha >= 0:
        return Link(alpha, beta)
    through_zero = math.fsum(nbytes / seconds for nbytes, seconds in points)
    return Link(0.0, through_zero / math.fsum((nbytes / seconds) ** 2 for nbytes, seconds in points))


def _check(name: str, value: float, is_right: bool) -> None:
    if not is_right:
        raise OptionError(f"describe a fabric with {name}={value}", found="this cannot be", remedy=f"correct {name}")
