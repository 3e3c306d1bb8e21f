"""Which of srun's --mpi plugins joins the ranks of an MPI library; from the text of ``srun --mpi=list``."""

from __future__ import annotations

import re

from hpccomm.errors import LaunchError

_NAME = re.compile(r"(?:srun: )?\s*([a-z][a-z0-9_]*)")  # alone on its line, in all versions of Slurm
_PMI = ("pmi2",)
_PMIX = ("pmix",)
_BY_VENDOR = {
    "Open MPI": _PMIX,
    "MPICH": _PMI,
    "MPICH2": _PMI,
    "MVAPICH": _PMI,
    "Intel MPI": _PMI,
    "Cray MPICH": ("cray_shasta", *_PMI),
    "Cray MPI": ("cray_shasta", *_PMI),
}


def listed(text: str) -> list[str]:
    """Give the plugins that ``srun --mpi=list`` names."""
    found = [_NAME.fullmatch(line.rstrip()) for line in text.splitlines()]
    return [match[1] for match in found if match]


def choose(plugins: list[str], *, vendor: str, library: str) -> str:
    """Give the plugin for an MPI library.

    Args:
        plugins: Those that there are.
        vendor: The name in mpi4py's ``MPI.get_vendor()``.
        library: ``MPI.Get_library_version()``, which tells a MPICH that was built for PMIx.

    Raises:
        LaunchError: None fits, or nothing is known of the library.
    """
    fitting = _BY_VENDOR.get(vendor, ())
    if fitting is _PMI and vendor != "Intel MPI" and "pmix" in library.lower():
        fitting = _PMIX
    for name in fitting:
        if name in plugins:
            return name
    wanted = " or ".join(fitting) if fitting else "nobody knows which"
    raise LaunchError(
        f"find the plugin with which srun --mpi=… joins the ranks of {vendor}",
        found=f"wanted is {wanted}; srun --mpi=list names {', '.join(plugins) or 'none'}",
        remedy="take the job bench-mpirun; or write the plugin's name into MPI_PLUGIN; or ask the site for the plugin",
    )


def mpi_of_this_python() -> tuple[str, str]:
    """Give the vendor and the version text of mpi4py's MPI library, without starting MPI."""
    import mpi4py

    mpi4py.rc.initialize = False
    from mpi4py import MPI

    return MPI.get_vendor()[0], MPI.Get_library_version()
