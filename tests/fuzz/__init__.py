"""Random cases of every collective on every kind of backend, checked against formulas.

``mpirun -np 4 python -m tests.fuzz --cases 10000 --seed 1``; `--case N` plays one case again, alone.

A case is drawn from the seed and its number alone, by every rank for itself (`draw`, from the table in `kinds`).
`layouts` puts tensors into memory, `seat` says what a rank sends and must get; `reductions`, `movements`, `blocks`,
`messages` and `chains` hold a function for each collective. `groups` keeps the process groups, `play` runs the cases,
`judge` compares.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for what all tests share
