"""The time of an all-reduce as backends run it: what `predict` says, but for hierarchies of large buffers.

`hierarchical(a, b)` cuts a buffer into pieces and reduces the next one inside the node while one crosses, so that for n
pieces the shorter of the two counts once and not n times.
"""

from __future__ import annotations

from hpccomm.algorithms import Algorithm
from hpccomm.algorithms.hierarchical import SHARD_BYTES
from hpccomm.cost import Fabric, predict

SIMULATED_RANKS = 32
"""Above this, closed forms are used alone: the simulation of a ring of 32 ranks takes 20 ms, of 128 ranks 400 ms."""


def seconds(
    algorithm: Algorithm,
    collective: str,
    count: int,
    *,
    itemsize: int,
    fabric: Fabric,
    simulated_ranks: int = SIMULATED_RANKS,
) -> float:
    """Give the seconds of one collective; arguments and errors are those of `predict`."""
    how = {"itemsize": itemsize, "simulated_ranks": simulated_ranks}
    levels = algorithm.levels
    if levels is None or collective != "all_reduce":
        return predict(algorithm, collective, count, fabric=fabric, **how)
    piece = levels.carriers * SHARD_BYTES // itemsize
    if count <= piece:
        return predict(algorithm, collective, count, fabric=fabric, **how)
    whole = predict(algorithm, collective, piece, fabric=fabric, **how)
    inside = Fabric.uniform(levels.carriers, fabric.intra, gamma_s_per_byte=fabric.gamma_s_per_byte)
    reducing = predict(levels.intra, "reduce_scatter", piece, fabric=inside, **how)
    gathering = predict(levels.intra, "all_gather", piece, fabric=inside, **how)
    crossing = whole - reducing - gathering
    number = count / piece
    return number * whole - (number - 1) * max(0.0, min(reducing, crossing))
