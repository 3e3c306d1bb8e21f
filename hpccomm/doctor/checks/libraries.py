"""What torch and the MPI library say of themselves once they are loaded; the trial looks, as they may crash."""

from __future__ import annotations

from collections.abc import Iterator

from hpccomm.doctor.case import Case, Facts
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.topology.grouping import count


def judge(case: Case) -> Iterator[Finding]:
    """Note a thread level below that which lets operations go on by themselves."""
    level = case.sights[0].facts.get("libraries", {}).get("level", "")
    if level not in ("", "multiple"):
        yield Finding(
            Severity.NOTE,
            "libraries",
            f"MPI grants the thread level {level}",
            found="asynchronous operations go on only while the program waits for one",
            remedy="use an MPI library that is built for MPI_THREAD_MULTIPLE",
        )


def show(facts: Facts) -> Iterator[Line]:
    """Give the MPI library, and how torch was built."""
    if facts.get("torch"):
        cuda = f"CUDA {facts['cuda']}, NCCL {facts['nccl'] or 'none'}" if facts["cuda"] else "no CUDA"
        yield Line("torch as loaded", f"{facts['torch']}, built with {cuda}; {count(facts['threads'], 'thread')}")
    if facts.get("mpi"):
        yield Line("MPI library", f"{facts['mpi']}  {facts['mpi_file']}".rstrip())
        yield Line("thread level", facts.get("level") or "unknown: MPI was not started")
        yield Line("CUDA-aware MPI", facts.get("cuda_aware") or "unknown: no GPU to try it on")
    else:
        yield Line("MPI library", facts.get("mpi_error") or "none")


CHECK = Check("libraries", dict, judge, show, scope="trial")
