"""What must hold where a job is to go on without ranks that die: Open MPI's fault tolerance, and no HAN.

HAN, Open MPI's component for collectives on several hosts, takes a peer's death for success and gives wrong sums.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping

from hpccomm.bootstrap import mpi
from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import HpccommError, LaunchError, WorldError
from hpccomm.exchange import Exchange
from hpccomm.launch import Launch
from hpccomm.ulfm import is_held
from hpccomm.watch.ending import leave

_FINALIZE_S = 3.0
_bereaved = False

_ENABLED, _COMPONENTS = "OMPI_MCA_mpi_ft_enable", "OMPI_MCA_coll"


def is_on(environ: Mapping[str, str]) -> bool:
    """Tell whether mpirun was started with fault tolerance."""
    return environ.get(_ENABLED, "") in ("1", "true")


def require(launch: Launch, environ: Mapping[str, str]) -> None:
    """See that the launcher leaves the others alone when a rank dies.

    Raises:
        LaunchError: The same on all ranks.
    """
    if not launch.uses_mpi or not is_on(environ):
        found = "the ranks were not started by Open MPI's mpirun with fault tolerance"
        raise _refusal(found, "start them with mpirun --with-ft ulfm …, or leave on_lost_rank at abort")


def prepare() -> None:
    """Switch HAN off before MPI starts; mpi4py must have been told not to start it.

    Raises:
        LaunchError: The same on all ranks: it is not Open MPI, or too late, or the user wants HAN.
    """
    from mpi4py import MPI

    if MPI.get_vendor()[0] != "Open MPI":
        raise _refusal(f"MPI is {MPI.get_vendor()[0]}", "use Open MPI 5, or leave on_lost_rank at abort")
    asked = os.environ.get(_COMPONENTS, "")
    excluded = asked[1:].split(",") if asked.startswith("^") else []
    if MPI.Is_initialized() and "han" not in excluded:
        found = f"MPI was started before, and {_COMPONENTS} did not say ^han then"
        raise _refusal(found, "make this the first start in the process, or run mpirun with --mca coll ^han")
    if asked and not excluded:
        raise _refusal(f"{_COMPONENTS}={asked} names the components that serve", "name those that do not: ^han,…")
    os.environ[_COMPONENTS] = f"^{','.join(dict.fromkeys([*filter(None, excluded), 'han']))}"


def begin(exchange: Exchange, survives: bool) -> None:
    """See that all ranks want the same, and have MPI report errors instead of ending the job; collective.

    Raises:
        HpccommError: The same on all ranks: ranks want different things, or MPI takes no calls from several threads.
    """
    from mpi4py import MPI

    wanted = exchange.all_gather(survives, "gather of on_lost_rank")
    if len(set(wanted)) > 1:
        raise WorldError(
            "start hpccomm with one on_lost_rank",
            found=f"shrink on rank {wanted.index(True)}, abort on rank {wanted.index(False)}",
            remedy="pass the same to init on all ranks",
            everywhere=True,
        )
    if survives and MPI.Query_thread() != MPI.THREAD_MULTIPLE:
        raise _refusal("MPI takes no calls from several threads", "let hpccomm start MPI")
    if survives:
        atexit.register(_end)  # before the world's own, so that this comes after it
        for one in (MPI.COMM_SELF, MPI.COMM_WORLD):  # mpi4py has done so for all others
            one.Set_errhandler(MPI.ERRORS_RETURN)


def mourn() -> None:
    """Note that a rank was lost, so that MPI may not end well."""
    global _bereaved
    _bereaved = True


def _end() -> None:
    """End MPI, or this process: where MPI waits for the dead, as at times after a second death, or holds a thread."""
    if is_held():
        leave(guard.status)
    if _bereaved:
        with vigil.over_end(_FINALIZE_S):
            mpi.finalize()


def _refusal(found: str, remedy: str) -> HpccommError:
    asked = 'go on without ranks that die (on_lost_rank="shrink")'
    return LaunchError(asked, found=found, remedy=remedy, everywhere=True)
