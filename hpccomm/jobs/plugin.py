"""Which of srun's --mpi plugins joins the ranks of an MPI library."""

from __future__ import annotations

import re

from hpccomm.errors import LaunchError

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
    """Read the names out of ``srun --mpi=list``, one a line or all in one, after a heading."""
    words = re.findall(r"^(?:srun:)?\s*([a-z0-9_]+(?:\s*,\s*[a-z0-9_]+)*)\s*$", text, re.MULTILINE)
    return list(dict.fromkeys(word.strip() for line in words for word in line.split(",")))


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
        versions = (one for one in plugins if one.startswith(f"{name}_v"))  # Slurm may have no more than pmix_v4
        if found := name if name in plugins else next(versions, None):
            return found
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
