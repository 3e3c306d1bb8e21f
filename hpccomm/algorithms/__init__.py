"""Algorithms: one file each, whose docstring gives steps, bytes and source; and the table of them.

A new algorithm is a schedule function and a line here, or a call of `register`. They know ranks, sizes and counts
only: no topology, tensor or library.
"""

from __future__ import annotations

from hpccomm.algorithms import (
    direct,
    dissemination,
    halving_doubling,
    naive,
    pairwise,
    recursive_doubling,
    ring,
    tree,
    van_de_geijn,
)
from hpccomm.algorithms.algorithm import COLLECTIVES, Algorithm
from hpccomm.errors import ScheduleError

__all__ = ["ALGORITHMS", "COLLECTIVES", "DEFAULTS", "Algorithm", "find", "register", "serving"]

_TABLE = (
    Algorithm(
        "naive",
        all_reduce=naive.all_reduce,
        broadcast=naive.broadcast,
        reduce=naive.reduce,
        gather=naive.gather,
        scatter=naive.scatter,
    ),
    Algorithm("direct", all_reduce=direct.all_reduce, separate_input=frozenset({"all_reduce"})),
    Algorithm(
        "pairwise",
        all_reduce=pairwise.all_reduce,
        reduce_scatter=pairwise.reduce_scatter,
        all_gather=pairwise.all_gather,
        all_to_all=pairwise.all_to_all,
        separate_input=frozenset({"all_to_all"}),
    ),
    Algorithm(
        "tree",
        all_reduce=tree.all_reduce,
        broadcast=tree.broadcast,
        reduce=tree.reduce,
        gather=tree.gather,
        scatter=tree.scatter,
    ),
    Algorithm("ring", all_reduce=ring.all_reduce, reduce_scatter=ring.reduce_scatter, all_gather=ring.all_gather),
    Algorithm(
        "halving_doubling",
        all_reduce=halving_doubling.all_reduce,
        reduce_scatter=halving_doubling.reduce_scatter,
        all_gather=halving_doubling.all_gather,
    ),
    Algorithm("recursive_doubling", all_reduce=recursive_doubling.all_reduce),
    Algorithm("van_de_geijn", broadcast=van_de_geijn.broadcast),
    Algorithm("dissemination", barrier=dissemination.barrier, separate_input=frozenset({"barrier"})),
)

ALGORITHMS = {algorithm.name: algorithm for algorithm in _TABLE}
"""All algorithms by name."""

DEFAULTS = {
    "all_reduce": "halving_doubling",
    "reduce_scatter": "pairwise",
    "all_gather": "pairwise",
    "broadcast": "tree",
    "reduce": "tree",
    "gather": "tree",
    "scatter": "tree",
    "all_to_all": "pairwise",
    "barrier": "dissemination",
}
"""The algorithm for a collective that the one asked for does not serve."""


def register(algorithm: Algorithm) -> None:
    """Add an algorithm under a new name.

    Raises:
        ScheduleError: The name is taken, or a separate input is stated for a collective that is not served.
    """
    asked = f"register the algorithm {algorithm.name!r}"
    if algorithm.name in ALGORITHMS:
        raise ScheduleError(asked, found="the name is taken", remedy="choose another name")
    unserved = algorithm.separate_input - set(algorithm.collectives)
    if unserved:
        found = f"separate_input names {', '.join(sorted(unserved))}, which it does not serve"
        raise ScheduleError(asked, found=found, remedy="name collectives that have a schedule")
    ALGORITHMS[algorithm.name] = algorithm


def find(name: str) -> Algorithm:
    """Give the algorithm of a name; ScheduleError where there is none."""
    if name not in ALGORITHMS:
        raise ScheduleError(
            f"use the algorithm {name!r}", found="no such algorithm", remedy=f"there are {', '.join(ALGORITHMS)}"
        )
    return ALGORITHMS[name]


def serving(name: str, collective: str) -> Algorithm:
    """Give the algorithm of a name where it serves the collective, else the one of `DEFAULTS`.

    Raises:
        ScheduleError: No such algorithm or collective.
    """
    algorithm = find(name)
    if collective not in COLLECTIVES:
        found, remedy = "no such collective", f"there are {', '.join(COLLECTIVES)}"
        raise ScheduleError(f"run {collective} by the algorithm {name!r}", found=found, remedy=remedy)
    return algorithm if collective in algorithm.collectives else ALGORITHMS[DEFAULTS[collective]]
