"""Starts of a process: the variables that a launcher sets, and what they say.

Recorded from real jobs (Slurm 22.05, Open MPI 4.1.8 and 5.0.11, MPICH 5.0.2, Intel MPI 2021.18, torch 2.14) and
trimmed, unless said otherwise.
"""

from __future__ import annotations

from hpccomm.launch import ALONE

Environ = dict[str, str]

PMIX = {"PMIX_NAMESPACE": "slurm.pmix.1.0", "PMIX_RANK": "2", "PMIX_HOSTNAME": "node2"}
PMI2 = {"PMI_FD": "11", "PMI_JOBID": "1.1", "PMI_RANK": "2", "PMI_SIZE": "4"}
ALLOCATION = {"SLURM_JOB_ID": "1", "SLURM_NTASKS": "4", "SLURM_NNODES": "2", "SLURM_TASKS_PER_NODE": "2(x2)"}
BATCH = ALLOCATION | {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_NPROCS": "4"}


def open_mpi_5(rank: int, size: int, local_rank: int, local_size: int) -> Environ:
    return {
        "OMPI_COMM_WORLD_LOCAL_RANK": str(local_rank),
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(local_size),
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(size),
        "OMPI_UNIVERSE_SIZE": str(size),
        "PMIX_NAMESPACE": "prterun-node1-201@1",
        "PMIX_RANK": str(rank),
        "PRTE_LAUNCHED": "1",
    }


def open_mpi_4(rank: int, size: int, local_rank: int, local_size: int) -> Environ:
    environ = open_mpi_5(rank, size, local_rank, local_size) | {"PMIX_NAMESPACE": "1515061249"}
    del environ["PRTE_LAUNCHED"]
    return environ | {"OMPI_MCA_orte_ess_num_procs": str(size), "PMIX_ID": f"1515061249.{rank}"}


def hydra(rank: int, size: int, local_rank: int, local_size: int) -> Environ:
    return {
        "MPI_LOCALNRANKS": str(local_size),
        "MPI_LOCALRANKID": str(local_rank),
        "PMI_FD": "5",
        "PMI_RANK": str(rank),
        "PMI_SIZE": str(size),
    }


def intel(rank: int, size: int, local_rank: int, local_size: int) -> Environ:
    own = {"I_MPI_HYDRA_TOPOLIB": "ipl2", "HYDRA_LAUNCH_TYPE": "2", "HYDRA_BSTRAP_LAUNCHER": "ssh"}
    return hydra(rank, size, local_rank, local_size) | own


def step(rank: int, size: int, local_rank: int, per_node: str, node: int = 0) -> Environ:
    return ALLOCATION | {
        "SLURM_LOCALID": str(local_rank),
        "SLURM_NODEID": str(node),
        "SLURM_NTASKS": str(size),
        "SLURM_PROCID": str(rank),
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": str(size),
        "SLURM_STEP_TASKS_PER_NODE": per_node,
    }


def torch_variables(rank: int, size: int) -> Environ:
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "node1", "MASTER_PORT": "43509"}


def torchrun(rank: int, size: int, local_rank: int, local_size: int) -> Environ:
    return torch_variables(rank, size) | {
        "GROUP_RANK": "1",
        "LOCAL_RANK": str(local_rank),
        "LOCAL_WORLD_SIZE": str(local_size),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


PMIX_STEP = step(2, 4, 0, "2(x2)", 1) | PMIX
PMI2_STEP = step(2, 4, 0, "2(x2)", 1) | PMI2
BARE_STEP = step(2, 4, 0, "2(x2)", 1)
# From Flux's documentation and its users' scripts, not recorded.
FLUX = {"FLUX_JOB_SIZE": "8", "FLUX_TASK_LOCAL_ID": "1", "FLUX_TASK_RANK": "5", "FLUX_JOB_ID": "f2e73NP"}
FLUX_PMI = FLUX | {"PMI_FD": "9", "PMI_RANK": "5", "PMI_SIZE": "8"}
# From the source of Slurm's plugin for Cray and scripts of users of PALS, not recorded.
PALS = {"PALS_LOCAL_RANKID": "1", "PALS_RANKID": "5", "PALS_LOCAL_SIZE": "4", "PALS_APID": "7"}
PALS_PMI = PALS | {"PMI_CONTROL_PORT": "20000", "PMI_RANK": "5", "PMI_SIZE": "8", "PMI_LOCAL_RANK": "1"}
CRAY_STEP = step(5, 8, 1, "4(x2)", 1) | PALS_PMI

OMPI5, OMPI4 = "Open MPI 5's mpirun", "Open MPI 4's mpirun"
HYDRA, IMPI = "MPICH's mpirun (Hydra)", "Intel MPI's mpirun"
STEP, STYLE, UNKNOWN = "a Slurm step", "torchrun-style variables", ALONE.name

# name -> variables, launcher, (rank, size, local rank, local size)
STARTS: dict[str, tuple[Environ, str, tuple[int | None, ...]]] = {
    "open-mpi-5": (open_mpi_5(1, 2, 1, 2), OMPI5, (1, 2, 1, 2)),
    "open-mpi-4": (open_mpi_4(1, 2, 1, 2), OMPI4, (1, 2, 1, 2)),
    "mpich": (hydra(1, 2, 1, 2) | {"HYDI_CONTROL_FD": "7"}, HYDRA, (1, 2, 1, 2)),
    "intel": (intel(1, 2, 1, 2), IMPI, (1, 2, 1, 2)),
    "open-mpi-5, first node of an allocation": (open_mpi_5(0, 4, 0, 2) | BATCH, OMPI5, (0, 4, 0, 2)),
    "open-mpi-5, its daemon's step": (open_mpi_5(1, 4, 0, 2) | step(0, 1, 0, "1"), OMPI5, (1, 4, 0, 2)),
    "open-mpi-4, its daemon's step": (open_mpi_4(3, 4, 1, 2) | step(0, 1, 0, "1"), OMPI4, (3, 4, 1, 2)),
    "mpich, its proxies' step": (hydra(2, 4, 0, 2) | step(1, 2, 0, "1(x2)", 1), HYDRA, (2, 4, 0, 2)),
    "intel, its proxies' step": (intel(2, 4, 0, 2) | step(1, 2, 0, "1(x2)", 1), IMPI, (2, 4, 0, 2)),
    "mpich in srun -n2 --pty bash": (
        hydra(1, 2, 1, 2) | step(0, 2, 0, "2") | {"SLURM_PTY_PORT": "37417"},
        HYDRA,
        (1, 2, 1, 2),
    ),
    "srun pmix": (PMIX_STEP, STEP, (2, 4, 0, 2)),
    "srun pmi2": (PMI2_STEP, STEP, (2, 4, 0, 2)),
    "srun none": (BARE_STEP, STEP, (2, 4, 0, 2)),
    "srun, uneven nodes": (step(6, 7, 0, "2(x3),1", 3), STEP, (6, 7, 0, 1)),
    "srun, no place among the nodes": (step(0, 2, 0, "2", 1), STEP, (0, 2, 0, None)),
    "srun --interactive": (
        step(0, 1, 0, "1") | {"SLURM_STEP_ID": "4294967290", "SLURM_MPI_TYPE": "pmix"},
        STEP,
        (0, 1, 0, 1),
    ),
    "srun, Cray's plugin": (CRAY_STEP, STEP, (5, 8, 1, 4)),
    "sbatch": (BATCH, UNKNOWN, (None,) * 4),
    "salloc": (ALLOCATION, UNKNOWN, (None,) * 4),
    "pals": (PALS_PMI, "Cray PALS", (5, 8, 1, 4)),
    "pals --pmi=pmix": (PALS | {"PMIX_RANK": "5", "PMIX_NAMESPACE": "7"}, "Cray PALS", (5, None, 1, 4)),
    "flux": (FLUX_PMI, "a Flux job", (5, 8, 1, None)),
    "torchrun": (torchrun(1, 2, 1, 2), "torchrun", (1, 2, 1, 2)),
    "torchrun in a batch script": (torchrun(1, 2, 1, 2) | BATCH, "torchrun", (1, 2, 1, 2)),
    "torchrun by srun": (torchrun(2, 4, 0, 2) | step(1, 2, 0, "1(x2)", 1), "torchrun", (2, 4, 0, 2)),
    "torchrun by mpirun": (torchrun(2, 4, 0, 2) | open_mpi_5(1, 2, 0, 1), "torchrun", (2, 4, 0, 2)),
    "torchrun by flux": (torchrun(2, 4, 0, 2) | FLUX | {"FLUX_TASK_LOCAL_ID": "0"}, "torchrun", (2, 4, 0, 2)),
    "by hand": (torch_variables(1, 2), STYLE, (1, 2, None, None)),
    "by hand in srun none": (BARE_STEP | torch_variables(2, 4), STYLE, (2, 4, None, None)),
    "mpirun, torch's variables": (open_mpi_5(1, 2, 1, 2) | torch_variables(1, 2), OMPI5, (1, 2, 1, 2)),
    "srun pmix, torch's variables": (PMIX_STEP | torch_variables(2, 4), STEP, (2, 4, 0, 2)),
    "mpirun, pretended nodes": (
        open_mpi_5(1, 2, 1, 2) | {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
        OMPI5,
        (1, 2, 1, 2),
    ),
    "alone": ({"PATH": "/usr/bin", "PMIX_MCA_psec": "native"}, UNKNOWN, (None,) * 4),
    "empty variables": ({"OMPI_COMM_WORLD_SIZE": "", "RANK": ""}, UNKNOWN, (None,) * 4),
}
