"""Say what the first rank does not hear of, once a host, where no MPI joins the ranks to agree on who says it."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from hashlib import sha256

from hpccomm.claim import claim

_held: list[socket.socket] = []


def say_once(lines: Sequence[str], *, rank: int | None) -> None:
    """Write lines to standard error, but for those that another child of this launcher on this host has written.

    Who writes a line takes a name for it that the others can see, and keeps it until its end.

    Args:
        lines: What is said, the same on all ranks that have it.
        rank: Who says it; None where that is not known.
    """
    who = "" if rank is None else f"rank {rank}: "
    for line in lines:
        name = sha256(line.encode(errors="replace")).hexdigest()[:32]
        mark = claim(f"hpccomm/doctor/{os.getppid()}/{name}")
        if mark is not None:
            _held.append(mark)
            print(f"hpccomm.doctor: {who}{line}", file=sys.stderr, flush=True)
