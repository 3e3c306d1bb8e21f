"""The links that explain measured times best, with what is left unexplained.

A closed form is a sum of alphas and of bytes times beta, so least squares on it are quick, but it only estimates what
overlaps. So every row's closed form is scaled by what the simulation of the same row gives, and fitted again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from hpccomm.cost import Fabric, Link
from hpccomm.errors import OptionError
from hpccomm.plan.fitted import Fit, Residual, largest_node, of_several_nodes
from hpccomm.plan.observations import Observation
from hpccomm.plan.pricing import SIMULATED_RANKS, seconds

PASSES = 4
"""How often rows are simulated; from the third time on the figures change by less than their errors."""

NAMES = ("intra.alpha", "intra.beta", "inter.alpha", "inter.beta", "injection", "gamma")
"""Figures of a fit; that of beta between nodes is solved for as what it is more than the injection's."""

_INTRA, _INTER, _INJECTION, _GAMMA = (0, 1), (2, 3), 4, 5
_START = (1e-5, 1e-9, 1e-5, 1e-9, 1e-9, 1e-10)
_RATIOS = (0.5, 0.1, 0.01)  # of inside to between nodes at the start, where the slower one hides the other
_FEELS = 0.01  # the least part of some row's time that a link must be to be known
_SHOWS = 0.25  # by which part some row would take longer were the link inside as slow as that between nodes

Figures = npt.NDArray[np.float64]


def fit(observations: Sequence[Observation]) -> Fit:
    """Minimise the squared relative errors over all rows.

    Raises:
        OptionError: Too few rows, or a level was measured at one size only, or no row would depend on it were it
            slow; scipy is missing.
    """
    free = _free(observations)
    solved = _solve(observations, free)
    if _INJECTION in free:
        unlimited = _solve(observations, [figure for figure in free if figure != _INJECTION])
        solved = solved if _explains_more(solved, unlimited) else unlimited
    hides_intra = _hides_intra(observations, solved)
    fabric = _fabric((0,), solved.figures)
    return Fit(
        fabric.intra if _INTRA[0] in free else None,
        hides_intra,
        fabric.inter if _INTER[0] in free else None,
        fabric.injection_bytes_per_s,
        fabric.gamma_s_per_byte,
        _standard_errors(solved),
        tuple(Residual(one, time) for one, time in zip(observations, solved.seconds, strict=True)),
    )


def _free(observations: Sequence[Observation]) -> list[int]:
    """List the figures that the rows can tell.

    Additions are told from transfers where some rows have them and some do not.
    """
    crossing = of_several_nodes(observations)
    shared = [one for one in observations if largest_node(one) > 1]
    free: list[int] = []
    for rows, figures, level in ((shared, _INTRA, "inside nodes"), (crossing, _INTER, "between nodes")):
        if rows and len({one.nbytes for one in rows}) < 2:
            found = f"one size only, {rows[0].nbytes} bytes, {level}"
            raise OptionError("fit links to measured times", found=found, remedy="measure short and long messages")
        free += figures if rows else ()
    free += [_INJECTION] if any(largest_node(one) > 1 for one in crossing) else []
    free += [_GAMMA] if len({_reduces(one) for one in observations}) == 2 else []
    if len(observations) <= len(free):
        found = f"{len(observations)} rows for {len(free)} figures"
        raise OptionError("fit links to measured times", found=found, remedy="measure more sizes and algorithms")
    return free


@dataclass(frozen=True)
class _Solved:
    """Figures and each row's time; of the free ones, how each row's relative error changes by parts of the start."""

    figures: Figures
    free: list[int]
    jacobian: Figures
    seconds: list[float]
    errors: Figures

    @property
    def scatter(self) -> float:
        """Variance of the relative errors."""
        return float(self.errors @ self.errors) / max(1, len(self.errors) - len(self.free))


def _solve(observations: Sequence[Observation], free: list[int]) -> _Solved:
    """Fit closed forms that are scaled to the simulation, over and over."""
    measured = np.array([one.seconds for one in observations])
    scales = np.ones(len(observations))
    for _ in range(PASSES):
        figures, jacobian = _minimum(observations, scales / measured, free)
        exact = np.array([_seconds(one, figures, SIMULATED_RANKS) for one in observations])
        scales = exact / np.array([_seconds(one, figures, 0) for one in observations])
    return _Solved(figures, free, jacobian, exact.tolist(), exact / measured - 1)


def _explains_more(solved: _Solved, simpler: _Solved) -> bool:
    """Tell whether one figure more is worth it: by two standard errors."""
    gain = float(simpler.errors @ simpler.errors - solved.errors @ solved.errors)
    return gain > 4 * solved.scatter


def _minimum(observations: Sequence[Observation], weights: Figures, free: list[int]) -> tuple[Figures, Figures]:
    """Give the figures whose weighted closed forms come nearest to 1, and the change of each by parts of the start."""
    try:
        from scipy.optimize import least_squares
    except ImportError as error:
        remedy = "pip install 'hpccomm[plan]'"
        raise OptionError("fit links to measured times", found="scipy is not installed", remedy=remedy) from error

    def figures(parts: Figures) -> Figures:
        whole = np.zeros(len(_START))
        whole[free] = parts * np.array(_START)[free]
        return whole

    def errors(parts: Figures) -> Figures:
        whole = figures(parts)
        return np.array([_seconds(one, whole, 0) for one in observations]) * weights - 1

    begin = np.ones(len(free)) / np.median(errors(np.ones(len(free))) + 1)
    is_intra = np.isin(free, _INTRA)
    ends = [
        least_squares(errors, np.where(is_intra, begin * ratio, begin), bounds=(0, np.inf), x_scale="jac")
        for ratio in _RATIOS
    ]
    found = min(ends, key=lambda end: float(end.cost))
    return figures(found.x), found.jac


def _fabric(nodes: tuple[int, ...], figures: Figures) -> Fabric:
    """A single rank sends no faster than its node, so the beta between nodes is at least the injection's."""
    alpha_intra, beta_intra, alpha_inter, above, injection, gamma = map(float, figures)
    limit = 1 / injection if injection > 0 else math.inf
    return Fabric(nodes, Link(alpha_intra, beta_intra), Link(alpha_inter, above + injection), gamma, limit)


def _seconds(one: Observation, figures: Figures, simulated_ranks: int) -> float:
    return seconds(
        one.algorithm,
        one.collective,
        one.count,
        itemsize=one.itemsize,
        fabric=_fabric(one.nodes, figures),
        simulated_ranks=simulated_ranks,
    )


def _hides_intra(observations: Sequence[Observation], solved: _Solved) -> bool:
    """Tell whether the link inside nodes could as well cost nothing; refuse where a slow one could, too.

    A flat ring goes at the pace of its slowest link, so that it says nothing of the others. A tree or a hierarchy
    passes the links one after the other.
    """
    free, figures = solved.free, solved.figures
    between = (*_INTER, _INJECTION)
    if _INTER[0] in free and _change(observations, figures, between, [0.0] * 3) < _FEELS:
        _refuse("between nodes", "several nodes")
    if _INTRA[0] not in free or _change(observations, figures, _INTRA, [0.0] * 2) >= _FEELS:
        return False
    alpha, above, injection = figures[[*between]]
    if _change(observations, figures, _INTRA, [alpha, above + injection]) < _SHOWS:
        _refuse("inside nodes", "one node")
    return True


def _refuse(level: str, more: str) -> NoReturn:
    found = f"no row's time depends on the link {level}"
    raise OptionError("fit links to measured times", found=found, remedy=f"add results of {more}")


def _change(
    observations: Sequence[Observation], figures: Figures, places: Sequence[int], values: Sequence[float]
) -> float:
    """Give the largest part by which some row's time changes where some figures have other values."""
    other = figures.copy()
    other[[*places]] = values
    return max(abs(_seconds(one, other, 0) / _seconds(one, figures, 0) - 1) for one in observations)


def _standard_errors(solved: _Solved) -> dict[str, float]:
    """Give standard errors over the figures, from the scatter of the rows as if these were independent."""
    covariance = solved.scatter * np.linalg.pinv(solved.jacobian.T @ solved.jacobian)
    parts = np.zeros((len(NAMES), len(solved.free)))
    for place, figure in enumerate(solved.free):
        parts[figure, place] = _START[figure]
    parts[_INTER[1]] += parts[_INJECTION]
    found = np.sqrt(np.diag(parts @ covariance @ parts.T))
    values = solved.figures.copy()
    values[_INTER[1]] += values[_INJECTION]
    return {NAMES[figure]: float(found[figure] / values[figure]) for figure in solved.free if values[figure] > 0}


def _reduces(one: Observation) -> bool:
    return one.collective in ("all_reduce", "reduce", "reduce_scatter")
