"""The table of launchers: by which variables each is told, and what it offers to an MPI library.

A new launcher is a new row of `LAUNCHERS`. No value of a variable is read here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

# The ways in which a launcher lets the ranks of an MPI library find each other
PMI = "PMI"  # versions 1 and 2: MPICH and its relatives
PMIX = "PMIx"  # Open MPI


@dataclass(frozen=True)
class Launcher:
    """One row of the table; an empty name of a variable means that the launcher sets none.

    Args:
        name: As it stands in messages.
        marks: The variables that together tell this launcher.
        rank: Variable with the rank.
        size: Variable with the number of ranks.
        local_rank: Variable with the rank within the node.
        local_size: Variable with the number of ranks on the node.
        node_rank: Set if `local_size` lists the counts of all nodes (``2(x3),1``): the variable to choose by.
        shell: Variable that it sets for a shell at a terminal, of whose tasks only the first does anything.
        offers: What it joins ranks by, of `PMI` and `PMIX`; None: an option decides, the variables show it.
        ask_pmix: Where an option decides: the command that asks for PMIx.
        ask_pmi: Where an option decides: the command that asks for PMI.
        parents: Names of the programs whose children ranks are, where a rank may outlive them.
        uses_mpi: False: the ranks meet in a torch store, MPI has no part.
    """

    name: str
    marks: tuple[str, ...]
    rank: str = ""
    size: str = ""
    local_rank: str = ""
    local_size: str = ""
    node_rank: str = ""
    shell: str = ""
    offers: frozenset[str] | None = frozenset()
    ask_pmix: str = ""
    ask_pmi: str = ""
    parents: frozenset[str] = frozenset()
    uses_mpi: bool = True

    def __str__(self) -> str:
        return f"{self.name} (recognised by {', '.join(self.marks)})" if self.marks else self.name

    def started(self, environ: Mapping[str, str]) -> bool:
        """Tell whether all marks are set; an empty variable counts as unset."""
        return all(environ.get(mark) for mark in self.marks)


TORCHRUN = Launcher(
    "torchrun",
    marks=("TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
    rank="RANK",
    size="WORLD_SIZE",
    local_rank="LOCAL_RANK",
    local_size="LOCAL_WORLD_SIZE",
    uses_mpi=False,
)
TORCHRUN_STYLE = replace(TORCHRUN, name="torchrun-style variables", marks=TORCHRUN.marks[1:])

OPEN_MPI_4 = Launcher(
    "Open MPI 4's mpirun",
    marks=("OMPI_COMM_WORLD_SIZE",),
    rank="OMPI_COMM_WORLD_RANK",
    size="OMPI_COMM_WORLD_SIZE",
    local_rank="OMPI_COMM_WORLD_LOCAL_RANK",
    local_size="OMPI_COMM_WORLD_LOCAL_SIZE",
    offers=frozenset({PMIX}),
    parents=frozenset({"mpirun", "mpiexec", "orterun", "orted", "prterun", "prted"}),
)
OPEN_MPI_5 = replace(OPEN_MPI_4, name="Open MPI 5's mpirun", marks=(*OPEN_MPI_4.marks, "PRTE_LAUNCHED"))

HYDRA = Launcher(
    "MPICH's mpirun (Hydra)",
    marks=("PMI_SIZE", "MPI_LOCALNRANKS"),
    rank="PMI_RANK",
    size="PMI_SIZE",
    local_rank="MPI_LOCALRANKID",
    local_size="MPI_LOCALNRANKS",
    offers=frozenset({PMI}),
)
INTEL_MPI = replace(HYDRA, name="Intel MPI's mpirun", marks=(*HYDRA.marks, "I_MPI_HYDRA_TOPOLIB"))

FLUX = Launcher(  # names from Flux's documentation, not seen in a real job; no variable holds the local size
    "a Flux job",
    marks=("FLUX_TASK_RANK", "FLUX_JOB_SIZE"),
    rank="FLUX_TASK_RANK",
    size="FLUX_JOB_SIZE",
    local_rank="FLUX_TASK_LOCAL_ID",
    offers=None,
    ask_pmix="flux run -o pmi=pmix",
    ask_pmi="flux run -o pmi=simple",
)
SLURM = Launcher(  # a batch script has SLURM_PROCID and SLURM_NTASKS too, but no SLURM_STEP_*
    "a Slurm step",
    marks=("SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS"),
    rank="SLURM_PROCID",
    size="SLURM_STEP_NUM_TASKS",
    local_rank="SLURM_LOCALID",
    local_size="SLURM_STEP_TASKS_PER_NODE",
    node_rank="SLURM_NODEID",
    shell="SLURM_PTY_PORT",  # srun --pty
    offers=None,
    ask_pmix="srun --mpi=pmix (srun --mpi=list shows what there is)",
    ask_pmi="srun --mpi=pmi2 (srun --mpi=list shows what there is; Cray MPICH: cray_shasta)",
)
PALS = Launcher(  # names from scripts of its users, not seen in a real job; with PMIx there is no PMI_SIZE
    "Cray PALS",
    marks=("PALS_RANKID",),
    rank="PALS_RANKID",
    size="PMI_SIZE",
    local_rank="PALS_LOCAL_RANKID",
    local_size="PALS_LOCAL_SIZE",
    offers=None,
    ask_pmix="mpiexec --pmi=pmix",
    ask_pmi="mpiexec --pmi=cray",
)
ALONE = Launcher("none", marks=())

# The first row that fits is taken. Innermost first: torchrun and mpirun run in a Slurm step or Flux job; and
# the more special before the more general: Slurm's and Flux's plugins for Cray set the variables of PALS.
LAUNCHERS = (TORCHRUN, OPEN_MPI_5, OPEN_MPI_4, INTEL_MPI, HYDRA, FLUX, SLURM, PALS, TORCHRUN_STYLE, ALONE)
