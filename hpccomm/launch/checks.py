"""Launcher against MPI library, before and after MPI starts: ranks that nobody joins must not go unseen."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hpccomm.launch.detection import Launch
from hpccomm.launch.launchers import ALONE, PMI, PMIX
from hpccomm.launch.variables import agree, launch_error, number

_SINGLETON = "if each process is meant to be a world of its own, set HPCCOMM_SINGLETON=1"


def check_library(launch: Launch, *, vendor: str, library: str) -> None:
    """Refuse a library that this launcher is known not to join; to be called before MPI_Init.

    MPI_Init itself may abort without a Python error. Pairs of which nothing is known pass: `check_world` sees
    what became of them.

    Args:
        launch: From `detect`.
        vendor: The name in mpi4py's ``MPI.get_vendor()``.
        library: ``MPI.Get_library_version()``.

    Raises:
        LaunchError: Names launcher and library and how to make them match.
    """
    if not launch.uses_mpi or launch.launcher is ALONE or _joins(launch, vendor, library):
        return
    singleton = f"; {_SINGLETON}" if vendor == "Open MPI" else ""  # MPICH would abort all the same
    offered = " and ".join(sorted(launch.offers)) or "neither PMI nor PMIx"
    version = library.strip("\0 \n").partition("\n")[0]
    raise launch_error(
        f"start {vendor} under {launch.launcher.name}",
        found=f"{launch.launcher} offers {offered}; the library needs {_needs(vendor)}: {version}",
        remedy=_remedy(launch, vendor) + singleton,
    )


def check_world(launch: Launch, *, rank: int, size: int, vendor: str, environ: Mapping[str, str]) -> None:
    """Refuse a world that is not the one that the variables announce; to be called after MPI_Init.

    Args:
        launch: From `detect`.
        rank: Rank in MPI_COMM_WORLD.
        size: Size of MPI_COMM_WORLD.
        vendor: The name in mpi4py's ``MPI.get_vendor()``.
        environ: The variables that `detect` read.

    Raises:
        LaunchError: N worlds of one process instead of one of N, unless HPCCOMM_SINGLETON=1; or a variable
            has another value than MPI.
    """
    if size == 1 and launch.singleton:
        return
    row = launch.launcher
    if size == 1 and launch.size is not None and launch.size > 1:
        raise launch_error(
            f"join {launch.size} ranks to one world",
            found=f"{row} says {row.size}={launch.size}, but for {vendor} each process is a world of its own",
            remedy=f"{_remedy(launch, vendor)}; {_SINGLETON}",
        )
    for name, what, true in (
        (row.size, "size", size),
        ("WORLD_SIZE", "size", size),
        (row.rank, "rank", rank),
        ("RANK", "rank", rank),
    ):
        value = number(environ, name)
        if not agree(value, true):
            raise launch_error(
                f"be rank {rank} of {size}, as {vendor} says",
                found=f"{name}={value}, but MPI's {what} is {true}",
                remedy=f"unset {name} if it is left over; else start as many ranks as it says",
            )


def _joins(launch: Launch, vendor: str, library: str) -> bool:
    if vendor == "Open MPI":
        if PMIX in launch.offers or launch.size == 1 or launch.singleton:
            return True
        # Up to version 4 it may have been built with the resource manager's PMI; later it knows PMIx only.
        version = re.match("Open MPI v([0-9]+)", library)
        return launch.launcher.offers is None and (version is None or int(version[1]) < 5)
    if vendor in ("MPICH", "MPICH2", "MVAPICH"):
        # Where it finds PMIx it aborts, a single rank too, unless configured so, which its version text tells.
        own = "pmix|slurm" if launch.launcher.offers is None else "pmix"
        return launch.offers != {PMIX} or re.search(own, library, re.IGNORECASE) is not None
    # Intel MPI takes PMIx too if it finds libpmix.so. Nothing is known of Cray MPICH under PMIx, nor of others.
    return True


def _needs(vendor: str) -> str:
    return PMIX if vendor == "Open MPI" else PMI


def _remedy(launch: Launch, vendor: str) -> str:
    row = launch.launcher
    by_option = row.ask_pmix if _needs(vendor) == PMIX else row.ask_pmi
    mpirun = f"the mpirun that was installed together with {vendor} (for wheels: beside this python)"
    if by_option:
        ways = [f"start with {by_option}, or with {mpirun}"]
    else:
        ways = [f"start with {mpirun}, or use the MPI library that belongs to {row.name}"]
    if vendor == "Intel MPI":
        ways.append("or set I_MPI_PMI_LIBRARY to the PMI library of the launcher")
    ways.append(f"if {', '.join(row.marks)} are left over from another job or shell, unset them")
    return "; ".join(ways)
