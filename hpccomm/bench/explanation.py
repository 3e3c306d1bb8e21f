"""What stands below the options in ``--help``: units, formulas, files, exit status."""

from __future__ import annotations

import textwrap

from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.results import COLUMNS

_FACTORS: dict[str, list[str]] = {}
for _one in COLLECTIVES.values():
    _FACTORS.setdefault(_one.formula, []).append(_one.name)

_COLUMNS = textwrap.fill(", ".join(COLUMNS), 110, initial_indent=" " * 10, subsequent_indent=" " * 10)

EXPLANATION = f"""\
units and formulas, for n ranks:
  size    bytes of the larger of a rank's tensors: 8, 64K, 1M (powers of 1024), the same on all ranks;
          all_gather gives and reduce_scatter takes n equal shares of it, barrier has no data
  time    microseconds of one call: the maximum over ranks, then the median over repetitions; * marks the smallest
  algbw   GB/s (10^9 bytes a second) = size / time
  busbw   GB/s = factor x size / time, to be compared with one link's speed whatever n is; the factor is
          {"; ".join(f"{formula} for {', '.join(names)}" for formula, names in _FACTORS.items() if formula)}.
          It assumes a flat ring: for a hierarchy it is a nominal figure. With one rank there is none.
  skew    microseconds (--wide): the longest minus the shortest time of a call over ranks, median of repetitions
  wire    GB/s (--wide), for hierarchies: bytes that leave a node / time; the bytes are the factor above with the
          number k of nodes for n, such as 2(k-1)/k x size for all_reduce, and more where elements are reduced in
          a wider dtype; for sendrecv, size x ranks of a node whose next rank is on another one
  p95     the smallest time that 95 % of the repetitions do not exceed; p99 likewise
out of place: all_reduce and broadcast, which torch has in place only, are timed with a copy before the call.

files     valid after every row, and so after Ctrl-C. --csv and the results of --json have these columns:
{_COLUMNS}
exit      0; 1 where a result was wrong, a backend failed, or a row is slower than --tolerance allows;
          2 for an option that does not fit; 128 + its number after a signal, or what the launcher makes of it
budget    is shared by the tables; the first size of each is measured even if there is nothing left

examples  mpirun -np 4 python -m hpccomm.bench --collective all_reduce broadcast --json new.json
          mpirun -np 4 python -m hpccomm.bench --backend mpi4py gloo "hierarchical(mpi4py, gloo, by=2)" --wide
          mpirun -np 4 python -m hpccomm.bench --algorithm ring tree -e 1M --compare old.json --tolerance 20%
          python -m hpccomm.bench --compare old.json new.json
"""
