"""The last rank is late for MPI's own start: stopped before it, or busy elsewhere; the argument is the deadline."""

from __future__ import annotations

import os
import signal
import sys
import time

import hpccomm

variables = ("OMPI_COMM_WORLD_RANK", "PMI_RANK")
rank = next(int(os.environ[name]) for name in variables if name in os.environ)
if rank == 2 and sys.argv[1] == "stopped":
    os.kill(os.getpid(), signal.SIGSTOP)
if rank == 2 and sys.argv[1] == "busy":
    time.sleep(300)
with hpccomm.init(timeout_s=float(sys.argv[2])):
    print("went on", flush=True)
