"""The environment without a launcher's variables, for a child of a rank that must not take itself for the rank."""

from __future__ import annotations

import re
from collections.abc import Mapping

_OF_LAUNCHERS = re.compile("OMPI_|PMIX_|PRTE_|PMI_|MPI_LOCAL|HYDI_|HYDRA_|I_MPI_HYDRA_|HPCCOMM_RANK_PID$")
_SETTINGS = re.compile("OMPI_ALLOW_|OMPI_MCA_(accelerator|btl|coll|mpi|mtl|opal|osc|pml|smsc)(_|$)|PMIX_MCA_|PRTE_MCA_")


def stripped(environ: Mapping[str, str]) -> dict[str, str]:
    """Give the variables that no launcher sets for its ranks; what users tell the MPI library stays.

    An MPI child that keeps the others hangs under Open MPI and dies under MPICH.
    """
    return {name: value for name, value in environ.items() if _SETTINGS.match(name) or not _OF_LAUNCHERS.match(name)}
