"""From variables to a `Launch`: the row of the table that fits, and its hints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from hpccomm.launch.launchers import ALONE, LAUNCHERS, PMI, PMIX, TORCHRUN_STYLE, Launcher
from hpccomm.launch.variables import (
    ASKED,
    agree,
    launch_error,
    number,
    number_of_node,
    refuse_rank_outside,
    switch,
)


@dataclass(frozen=True)
class Launch:
    """How this process was started, as far as the variables tell; None where they say nothing.

    Args:
        launcher: The row of the table.
        rank: Hint at the rank.
        size: Hint at the number of ranks.
        local_rank: Hint at the rank within the node.
        local_size: Hint at the number of ranks on this node.
        offers: What the launcher offers to this process of `PMI` and `PMIX`.
        singleton: HPCCOMM_SINGLETON=1 is set: each process is meant to be a world of its own.
        notes: Sentences for the reader of a report.
    """

    launcher: Launcher
    rank: int | None = None
    size: int | None = None
    local_rank: int | None = None
    local_size: int | None = None
    offers: frozenset[str] = frozenset()
    singleton: bool = False
    notes: tuple[str, ...] = ()

    @property
    def hint_rank(self) -> int:
        """The rank if known, else 0: enough to let one rank print."""
        return self.rank or 0

    @property
    def uses_mpi(self) -> bool:
        """Whether MPI joins the ranks; alone it is a world of one."""
        return self.launcher.uses_mpi


def launcher_of(environ: Mapping[str, str]) -> Launcher:
    """Give the row of the launcher that these variables tell of, whatever else they say."""
    return next(row for row in LAUNCHERS if row.started(environ))


def detect(environ: Mapping[str, str]) -> Launch:
    """Find the launcher of this process; starts and imports nothing.

    Raises:
        LaunchError: A malformed number, one launcher inside another's several processes, or RANK or WORLD_SIZE
            that contradicts the MPI launcher. Names the variables.
    """
    launch = _read(launcher_of(environ), environ)
    notes = [_inside(launch, outer, environ) for outer in _outer_launches(launch, environ)]
    if launch.uses_mpi and not launch.singleton:
        _refuse_other_torch_variables(launch, environ)
        if launch.size != 1 and not launch.offers and TORCHRUN_STYLE.started(environ):
            notes.append(f"{launch.launcher.name} without PMI or PMIx: joined by RANK, WORLD_SIZE and MASTER_*")
            launch = _read(TORCHRUN_STYLE, environ)
    if launch.launcher is ALONE and environ.get("SLURM_JOB_ID"):
        notes.append("in a Slurm allocation, but started by neither srun nor mpirun: a single process")
    return replace(launch, notes=tuple(notes))


def _read(row: Launcher, environ: Mapping[str, str]) -> Launch:
    rank, size, local_rank = (number(environ, name) for name in (row.rank, row.size, row.local_rank))
    if row.node_rank:
        local_size = number_of_node(environ, row.local_size, row.node_rank)
    else:
        local_size = number(environ, row.local_size)
    refuse_rank_outside(row.rank, rank, row.size, size)
    refuse_rank_outside(row.local_rank, local_rank, row.local_size, local_size)
    offers = _offers(environ) if row.offers is None else row.offers
    singleton = switch(environ, "HPCCOMM_SINGLETON")
    return Launch(row, rank, size, local_rank, local_size, offers=offers, singleton=singleton)


def _offers(environ: Mapping[str, str]) -> frozenset[str]:
    """Tell what the variables offer; users export PMIX_MCA_* themselves, those show nothing."""
    pmix = [PMIX] if environ.get("PMIX_RANK") and environ.get("PMIX_NAMESPACE") else []
    pmi = [PMI] if any(environ.get(name) for name in ("PMI_FD", "PMI_RANK", "PMI_CONTROL_PORT")) else []
    return frozenset(pmix + pmi)


def _outer_launches(launch: Launch, environ: Mapping[str, str]) -> Iterator[Launch]:
    """Yield what other MPI launchers left in the environment, unless it is the same rank and size."""
    for row in LAUNCHERS:
        if row.uses_mpi and row.marks and row is not launch.launcher and row.started(environ):
            outer = _read(row, environ)
            if not (agree(launch.rank, outer.rank) and agree(launch.size, outer.size)):
                yield outer


def _inside(inner: Launch, outer: Launch, environ: Mapping[str, str]) -> str:
    """Say which launcher runs inside which.

    One process a node is how torchrun is started on several nodes, and how mpirun starts its daemons; several
    on a node mean that each of them started a job of its own.

    Raises:
        LaunchError: The outer launcher started several processes on this node.
    """
    several = outer.local_size > 1 if outer.local_size is not None else (outer.local_rank or 0) > 0
    if not several or environ.get(outer.launcher.shell):
        return f"{inner.launcher.name} inside {outer.launcher.name}"
    if inner.uses_mpi:
        remedy = "call mpirun itself, once, without another launcher (such as srun) before it"
    else:
        remedy = "let the outer one start one on each node: srun --ntasks-per-node=1, mpirun --map-by ppr:1:node"
    raise launch_error(
        ASKED,
        found=f"{inner.launcher} together with {outer.launcher}, which started several processes on this node",
        remedy=f"start the program with one of the two only, or unset what the other left over; or {remedy}",
    )


def _refuse_other_torch_variables(launch: Launch, environ: Mapping[str, str]) -> None:
    row = launch.launcher
    for name, ours, hint in (("WORLD_SIZE", row.size, launch.size), ("RANK", row.rank, launch.rank)):
        value = number(environ, name)
        if not agree(value, hint):
            raise launch_error(
                ASKED,
                found=f"{name}={value}, but {row} says {ours}={hint}",
                remedy=f"unset {name}, or correct the script that exports it; or start as many ranks as it says",
            )
