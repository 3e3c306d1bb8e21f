"""What the figures mean, in words: above a table, in the JSON file, and below the options of ``--help``. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from hpccomm.bench.collectives import COLLECTIVES, Collective
from hpccomm.bench.files import COLUMNS

TIME = "microseconds of one call: maximum over ranks, then median of the repetitions"
SKEW = "microseconds: maximum minus minimum over ranks of the time of a call, then median of the repetitions"


def busbw(collective: Collective, ranks: int) -> str:
    """Say what the bus bandwidth is, with the factor for so many ranks."""
    factor = collective.bus_factor(ranks)
    if collective.factor is None:
        return "none without data"
    if factor is None:
        return "none with one rank"
    moves = collective.moves
    formula = f"GB/s = {_times(collective.formula)}{moves} / time"
    return f"{formula}; n = {ranks} ranks: {factor:.4g} x {moves} / time" if "n" in collective.formula else formula


def wire(collective: Collective) -> str:
    """Say how many bytes leave a node of a hierarchy."""
    if collective.factor is None:
        return "none without data"
    if collective.to_next:
        return "bytes that leave a node = size x its ranks whose next one is on another node; GB/s = these / time"
    factor = _times(collective.formula.replace("n", "k"))
    nodes = "k nodes; " * ("k" in factor)
    return f"{nodes}bytes that leave a node = {factor}{collective.moves} as it travels; GB/s = these / time"


def definitions(collectives: Iterable[Collective], ranks: int) -> dict[str, object]:
    """Give all definitions for these collectives."""
    found = list(collectives)
    return {
        "size": "bytes of the larger of a rank's tensors; KiB = 1024 B",
        "time": TIME,
        "p95, p99": "the smallest time that 95 % (99 %) of the repetitions do not exceed",
        "skew": SKEW,
        "algbw": "GB/s (10^9 bytes a second) = size / time",
        "busbw": {one.name: busbw(one, ranks) for one in found},
        "wire": {one.name: wire(one) for one in found},
        "wrong": "elements that are not what they must be, over all ranks, before and after the timed calls; of a "
        "barrier, the calls that a rank left before another one of its host had come",
        "fell_back": "of failover(...): which backend was left for which, until the end of this row",
    }


def _times(formula: str) -> str:
    return "" if formula == "1" else f"{formula} x "


def _factors() -> str:
    names: dict[str, list[str]] = {}
    for one in COLLECTIVES.values():
        names.setdefault(one.formula, []).append(one.name)
    return "; ".join(f"{formula} for {', '.join(found)}" for formula, found in names.items() if formula)


def _columns() -> str:
    return textwrap.fill(", ".join(COLUMNS), 110, initial_indent=" " * 10, subsequent_indent=" " * 10)


EXPLANATION = f"""\
units and formulas, for n ranks:
  size    bytes of the larger of a rank's tensors: 8, 64K, 1M (powers of 1024), the same on all ranks;
          all_gather gives and reduce_scatter takes n equal shares of it, barrier has no data
  time    microseconds of one call: the maximum over ranks, then the median over repetitions; * marks the smallest
  algbw   GB/s (10^9 bytes a second) = size / time
  busbw   GB/s = factor x size / time, to be compared with one link's speed whatever n is; the factor is
          {_factors()}.
          It assumes a flat ring: for a hierarchy it is a nominal figure. With one rank there is none.
  skew    microseconds (--wide): the longest minus the shortest time of a call over ranks, median of repetitions
  wire    GB/s (--wide), for hierarchies: bytes that leave a node / time; the bytes are the factor above with the
          number k of nodes for n, such as 2(k-1)/k x size for all_reduce, and more where elements are reduced in
          a wider dtype; for sendrecv, size x ranks of a node whose next rank is on another one
  p95     the smallest time that 95 % of the repetitions do not exceed; p99 likewise
  pairs   (--pairs) latency and bandwidth of every rank with every other, both directions, in rounds of disjoint
          pairs, host against host; above 64 ranks in 64 rounds of all; every message is checked
  others  (--measure) buckets and overlap: time is a whole step's, size a bucket's, and rates count all gradients;
          workloads: in the groups that share an operation, all at once, then counted as often as a step has it;
          stability: without a barrier before a call, so that ranks that come late show
out of place: all_reduce and broadcast, which torch has in place only, are timed with a copy before the call.

files     valid after every row, and so after Ctrl-C. --csv and the results of --json have these columns:
{_columns()}
exit      0; 1 where a result was wrong, a backend failed, a row is slower than --tolerance
          allows, or a backend than --min-busbw;
          2 for an option that does not fit; 128 + its number after a signal, or what the launcher makes of it
budget    is shared by the tables; the first size of each is measured even if there is nothing left

examples  mpirun -np 4 python -m hpccomm.bench --collective all_reduce broadcast --json new.json
          mpirun -np 4 python -m hpccomm.bench --backend mpi4py gloo "hierarchical(mpi4py, gloo, by=2)" --wide
          mpirun -np 4 python -m hpccomm.bench --algorithm ring tree -e 1M --compare old.json --tolerance 20%
          python -m hpccomm.bench --compare old.json new.json
          mpirun -np 8 python -m hpccomm.bench --suite standard --pairs --report out
          mpirun -np 8 python -m hpccomm.bench --suite workloads --model gpt3-6.7b --tp 4 --pp 2 --scale 16
          python -m hpccomm.bench --report out --from ranks8.json ranks16.json
"""
