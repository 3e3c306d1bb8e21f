"""Jobs that go on without ranks that die, on this host or on a cluster of hosts on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from bench.cluster.cluster import Cluster
from harness import Job, Mpi, Result, known_mpis

JOB_S = 200.0


@contextmanager
def hosts(count: int) -> Iterator[Cluster | None]:
    """Give so many hosts; None for this one."""
    if count == 1:
        yield None
        return
    with Cluster(hosts=count) as cluster:
        yield cluster


def open_mpi() -> Mpi:
    """Give Open MPI, whose mpirun leaves the others alone when a rank dies."""
    mpi = next(mpi for mpi in known_mpis() if mpi.is_open_mpi)
    return replace(mpi, options=(*mpi.options, "--with-ft", "ulfm"))


def run(cluster: Cluster | None, np: int, argv: Sequence[str]) -> Result:
    """Run a Python program on ranks that fill the hosts one after the other."""
    mpi = open_mpi()
    program = [mpi.python, *argv]
    if cluster is None:
        command = mpi.command(np, program)
    else:
        names = cluster.names
        command = cluster.command(mpi, program, tuple(names[rank * len(names) // np] for rank in range(np)))
    return Job(command, env=mpi.environment()).wait(JOB_S)


def held(result: Result, left: int) -> bool:
    """Tell whether a job ended well, and as many ranks as are left say that all was right."""
    ended = result.returncode == 0 and not result.timed_out and not result.leftovers
    return ended and "WRONG" not in result.stdout and result.stdout.count("right\n") == left
