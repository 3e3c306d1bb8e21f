"""The benchmark where one rank is slow: delayed_bench.py RANK SECONDS WHERE ARGUMENT ...

WHERE is ``fill``, so that the rank comes late to everything, or ``call``, so that its every collective takes longer.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from hpccomm.bench import inputs
from hpccomm.bench.__main__ import leave, main
from hpccomm.bench.case import Case


def slowed(action: Callable[..., Any], seconds: float) -> Callable[..., Any]:
    """Give an action that takes so much longer."""

    def slow(*arguments: Any) -> Any:
        time.sleep(seconds)  # first: ranks that end their part later than this one would hide it
        return action(*arguments)

    return slow


def delay(seconds: float, where: str) -> None:
    """Make this rank slow."""
    if where == "fill":
        inputs.fill = slowed(inputs.fill, seconds)
    else:
        Case.run = slowed(Case.run, seconds)  # type: ignore[method-assign]


rank = os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]
if rank == sys.argv[1]:
    delay(float(sys.argv[2]), sys.argv[3])
leave(main(sys.argv[4:], os.environ))
