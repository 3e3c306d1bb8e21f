"""The time of an algorithm's collective by its name: simulated, or in closed form where that would take too long."""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.algorithms import Algorithm
from hpccomm.cost import closed
from hpccomm.cost.fabric import Fabric
from hpccomm.cost.simulation import simulate
from hpccomm.errors import ScheduleError
from hpccomm.schedule import Step, shares

SIMULATED_RANKS = 128
"""Above this, closed forms are used where there is one: a ring of so many ranks has 32,512 messages."""


def predict(
    algorithm: Algorithm,
    collective: str,
    count: int,
    *,
    itemsize: int,
    fabric: Fabric,
    simulated_ranks: int = SIMULATED_RANKS,
) -> float:
    """Give the seconds of one collective with root 0.

    Args:
        algorithm: What to run.
        collective: Which of the collectives that it serves.
        count: Elements of the whole buffer, cut into equal blocks where there are blocks; for all-to-all, elements
            that each rank sends.
        itemsize: Bytes of an element.
        fabric: The machine.
        simulated_ranks: Up to how many ranks the schedules are simulated although there is a closed form.

    Raises:
        ScheduleError: The algorithm does not serve the collective.
    """
    if collective not in algorithm.collectives:
        raise ScheduleError(
            f"predict {collective} by the algorithm {algorithm.name}",
            found="it does not serve this collective",
            remedy=f"it serves {', '.join(algorithm.collectives)}",
        )
    counted = closed.terms(algorithm, collective, fabric.nodes) if fabric.size > simulated_ranks else None
    if counted is not None:
        nbytes = itemsize if collective == "barrier" else count * itemsize
        return closed.seconds(counted, nbytes, fabric)
    schedules = [_steps(algorithm, collective, rank, fabric.size, count) for rank in range(fabric.size)]
    return simulate(schedules, itemsize=itemsize, fabric=fabric)


def _steps(algorithm: Algorithm, collective: str, rank: int, size: int, count: int) -> Iterator[Step]:
    counts = shares(size, count)
    arguments = {
        "all_reduce": (count,),
        "broadcast": (count, 0),
        "reduce": (count, 0),
        "reduce_scatter": (counts,),
        "all_gather": (counts,),
        "gather": (counts, 0),
        "scatter": (counts, 0),
        "all_to_all": (counts, [counts[rank]] * size),
        "barrier": (),
    }[collective]
    steps: Iterator[Step] = getattr(algorithm, collective)(rank, size, *arguments)
    return steps
