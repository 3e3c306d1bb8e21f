"""Steps of a training loop that outlive the death of a rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hpccomm.bootstrap.world import World
from hpccomm.errors import RankLostError

T = TypeVar("T")


def survive(world: World, compute: Callable[[], T], *, rebuild: Callable[[], object]) -> T:
    """Do what the ranks do together in a step; where one has died, do it again with those that are left; collective.

    It is for what changes nothing for good: forward, backward and averages. The optimizer steps afterwards, on
    gradients that all ranks that are left have got. What `compute` changes besides (running statistics, random numbers,
    an iterator) is the caller's to bring back, in `compute` or in `rebuild`.

    It costs an agreement of all ranks a step, 0.1 ms among 4 ranks of a busy host with 2 cores.

    Args:
        world: The world of ``hpccomm.init(on_lost_rank="shrink")``.
        compute: Does it from the start, so with inputs that were kept and gradients set to zero. An average over the
            world's groups is one over the ranks that are left.
        rebuild: Called when the world has shrunk: makes anew, for `world.topology`, what stood on the old groups, such
            as DDP around the same module.

    Returns:
        What `compute` gave when it ended well on all ranks that are left.

    Raises:
        WorldError: The world does not outlive its ranks.
        Exception: What `compute` raised while no rank was lost.
    """
    shrunk = False
    while True:
        well, result = _attempt(world, compute, rebuild if shrunk else lambda: None)
        if world.agree(well):
            return result[0]
        world.shrink()
        shrunk = True


def _attempt(world: World, compute: Callable[[], T], rebuild: Callable[[], object]) -> tuple[bool, list[T]]:
    """Give whether no rank was lost meanwhile, and in a list what came out."""
    try:
        rebuild()
        return True, [compute()]
    except Exception as error:  # DDP hands on an error of its group as another one
        if not (isinstance(error, RankLostError) or world.lost):
            raise
        return False, []
