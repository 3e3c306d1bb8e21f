"""The last rank is stopped after its world is closed, while the others end MPI; the argument is their deadline."""

from __future__ import annotations

import os
import signal
import sys

from hpccomm import init

init(timeout_s=100).close()  # loads all modules, in which ranks may be seconds apart
with init(timeout_s=float(sys.argv[1])) as world:
    is_last = world.topology.rank == world.topology.world_size - 1
if is_last:
    os.kill(os.getpid(), signal.SIGSTOP)
