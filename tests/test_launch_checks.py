"""Launcher against MPI library and world: ranks that nobody joins are seen."""

from __future__ import annotations

import pytest

from harness import Mpi, known_mpis, run_job
from hpccomm.errors import LaunchError
from hpccomm.launch import check_library, check_world, detect
from launch_starts import BARE_STEP, PALS, PMIX_STEP, STARTS, Environ, open_mpi_5, torch_variables

OPEN_MPI = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution, ident: 5.0.11\0"
OPEN_MPI_4 = "Open MPI v4.1.8, package: Open MPI user@localhost Distribution, ident: 4.1.8\0"
MPICH = "MPICH Version:      5.0.2\nMPICH ABI:          18:2:6\nMPICH configure:    --with-device=ch4:ucx,ofi\n"
MPICH_PMIX = MPICH + "MPICH configure:    --with-pmix=/usr\n"
MPICH_SLURM = MPICH + "MPICH configure:    --with-pmi=slurm\n"
INTEL = "Intel(R) MPI Library 2021.18.1 for Linux* OS\n"
CRAY = "MPI VERSION    : CRAY MPICH version 8.1.29.2 (ANL base 3.4a2)\n"

JOINED = [
    ("open-mpi-5", "Open MPI", OPEN_MPI),
    ("open-mpi-4", "Open MPI", OPEN_MPI),
    ("open-mpi-4", "Open MPI", OPEN_MPI_4),
    ("open-mpi-5", "MPICH", MPICH_PMIX),
    ("open-mpi-5", "Intel MPI", INTEL),
    ("mpich", "MPICH", MPICH),
    ("mpich", "Intel MPI", INTEL),
    ("mpich", "Cray MPICH", CRAY),
    ("mpich", "MVAPICH", "MVAPICH Version: 4.0\n"),
    ("intel", "MPICH", MPICH),
    ("intel", "Intel MPI", INTEL),
    ("srun pmix", "Open MPI", OPEN_MPI),
    ("srun pmix", "Open MPI", OPEN_MPI_4),
    ("srun pmix", "MPICH", MPICH_PMIX),
    ("srun pmix", "MPICH", MPICH_SLURM),
    ("srun pmix", "Intel MPI", INTEL),
    ("srun pmi2", "MPICH", MPICH),
    ("srun pmi2", "Intel MPI", INTEL),
    ("srun pmi2", "Open MPI", OPEN_MPI_4),
    ("srun none", "MPICH", MPICH),
    ("srun none", "Intel MPI", INTEL),
    ("srun none", "unknown", "Some MPI 1.0"),
    ("srun --interactive", "Open MPI", OPEN_MPI),
    ("srun, Cray's plugin", "Cray MPICH", CRAY),
    ("pals", "MPICH", MPICH),
    ("pals --pmi=pmix", "Open MPI", OPEN_MPI),
    ("flux", "MPICH", MPICH),
    ("flux", "Open MPI", OPEN_MPI_4),
    ("sbatch", "Open MPI", OPEN_MPI),
    ("alone", "MPICH", MPICH),
    ("torchrun", "MPICH", MPICH),
]


@pytest.mark.parametrize(("start", "vendor", "library"), JOINED)
def test_library_that_may_be_joined_passes(start: str, vendor: str, library: str) -> None:
    check_library(detect(STARTS[start][0]), vendor=vendor, library=library)


REFUSED = [
    ("open-mpi-5", "MPICH", MPICH, "PMIx", "beside this python"),
    ("open-mpi-5", "MPICH", MPICH_SLURM, "PMIx", "beside this python"),
    ("open-mpi-4", "MPICH", MPICH, "PMIx", "beside this python"),
    ("open-mpi-5", "MVAPICH", "MVAPICH Version: 4.0\n", "PMIx", "beside this python"),
    ("mpich", "Open MPI", OPEN_MPI, "PMI", "beside this python"),
    ("mpich", "Open MPI", OPEN_MPI_4, "PMI", "beside this python"),
    ("intel", "Open MPI", OPEN_MPI, "PMI", "beside this python"),
    ("srun pmix", "MPICH", MPICH, "PMIx", "srun --mpi=pmi2"),
    ("srun pmi2", "Open MPI", OPEN_MPI, "PMI", "srun --mpi=pmix"),
    ("srun none", "Open MPI", OPEN_MPI, "neither PMI nor PMIx", "srun --mpi=pmix"),
    ("flux", "Open MPI", OPEN_MPI, "PMI", "-o pmi=pmix"),
    ("pals", "Open MPI", OPEN_MPI, "PMI", "--pmi=pmix"),
    ("pals --pmi=pmix", "MPICH", MPICH, "PMIx", "--pmi=cray"),
]


@pytest.mark.parametrize(("start", "vendor", "library", "offered", "way"), REFUSED)
def test_library_that_is_not_joined_is_refused(start: str, vendor: str, library: str, offered: str, way: str) -> None:
    launch = detect(STARTS[start][0])
    with pytest.raises(LaunchError) as caught:
        check_library(launch, vendor=vendor, library=library)
    error = caught.value
    assert error.everywhere
    assert vendor in error.asked
    assert f"{launch.launcher} offers {offered};" in error.found
    assert all(mark in error.found for mark in launch.launcher.marks)
    assert library.strip("\0").splitlines()[0] in error.found
    assert way in error.remedy
    assert ("HPCCOMM_SINGLETON" in error.remedy) == (vendor == "Open MPI")


@pytest.mark.parametrize("start", ["mpich", "srun pmi2", "srun none"])
def test_open_mpi_alone_in_each_process_is_permitted_if_meant(start: str) -> None:
    check_library(detect(STARTS[start][0] | {"HPCCOMM_SINGLETON": "1"}), vendor="Open MPI", library=OPEN_MPI)


def test_mpich_that_would_abort_is_refused_at_one_rank_and_as_singleton_too() -> None:
    launch = detect(open_mpi_5(0, 1, 0, 1) | {"HPCCOMM_SINGLETON": "1"})
    with pytest.raises(LaunchError, match="MPICH"):
        check_library(launch, vendor="MPICH", library=MPICH)


def world_refusal(environ: Environ, *, rank: int, size: int, vendor: str) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        check_world(detect(environ), rank=rank, size=size, vendor=vendor, environ=environ)
    assert caught.value.everywhere
    return caught.value


@pytest.mark.parametrize(("environ", "name", "hints"), STARTS.values(), ids=STARTS)
def test_world_as_announced_passes(environ: Environ, name: str, hints: tuple[int | None, ...]) -> None:
    rank, size = hints[0] or 0, hints[1] or 8
    check_world(detect(environ), rank=rank, size=size, vendor="Open MPI", environ=environ)


@pytest.mark.parametrize(
    ("start", "vendor", "size", "way"),
    [
        ("srun none", "MPICH", "SLURM_STEP_NUM_TASKS=4", "srun --mpi=pmi2"),
        ("srun pmi2", "Open MPI", "SLURM_STEP_NUM_TASKS=4", "srun --mpi=pmix"),
        ("srun pmix", "Intel MPI", "SLURM_STEP_NUM_TASKS=4", "I_MPI_PMI_LIBRARY"),
        ("open-mpi-5", "Intel MPI", "OMPI_COMM_WORLD_SIZE=2", "Intel MPI (for wheels: beside this python)"),
        ("mpich", "Open MPI", "PMI_SIZE=2", "Open MPI (for wheels: beside this python)"),
        ("pals", "MPICH", "PMI_SIZE=8", "mpiexec --pmi=cray"),
        ("flux", "Open MPI", "FLUX_JOB_SIZE=8", "flux run -o pmi=pmix"),
    ],
)
def test_worlds_of_one_process_are_refused(start: str, vendor: str, size: str, way: str) -> None:
    error = world_refusal(STARTS[start][0], rank=0, size=1, vendor=vendor)
    launcher = detect(STARTS[start][0]).launcher
    assert str(launcher) in error.found
    assert size in error.found
    assert vendor in error.found
    assert all(word in error.remedy for word in (way, launcher.marks[0], "unset", "HPCCOMM_SINGLETON=1"))


def test_worlds_of_one_process_are_permitted_if_meant() -> None:
    environ = BARE_STEP | torch_variables(0, 1) | {"HPCCOMM_SINGLETON": "1"}
    check_world(detect(environ), rank=0, size=1, vendor="MPICH", environ=environ)


def test_variable_left_over_in_the_shell_is_refused_by_name() -> None:
    error = world_refusal({"OMPI_COMM_WORLD_SIZE": "4"}, rank=0, size=1, vendor="MPICH")
    assert "OMPI_COMM_WORLD_SIZE=4" in error.found
    assert "OMPI_COMM_WORLD_SIZE" in error.remedy


@pytest.mark.parametrize(
    ("environ", "rank", "size", "found"),
    [
        (open_mpi_5(1, 2, 1, 2), 1, 4, "OMPI_COMM_WORLD_SIZE=2, but MPI's size is 4"),
        (open_mpi_5(1, 2, 1, 2), 0, 2, "OMPI_COMM_WORLD_RANK=1, but MPI's rank is 0"),
        (PMIX_STEP, 3, 4, "SLURM_PROCID=2, but MPI's rank is 3"),
        (PALS, 4, 8, "PALS_RANKID=5, but MPI's rank is 4"),
        ({"WORLD_SIZE": "4"}, 0, 1, "WORLD_SIZE=4, but MPI's size is 1"),
        ({"RANK": "1"}, 0, 2, "RANK=1, but MPI's rank is 0"),
        ({"RANK": "1", "HPCCOMM_SINGLETON": "1"}, 0, 2, "RANK=1, but MPI's rank is 0"),
    ],
)
def test_variable_that_mpi_contradicts_is_refused(environ: Environ, rank: int, size: int, found: str) -> None:
    error = world_refusal(environ, rank=rank, size=size, vendor="MPICH")
    assert error.found == found
    assert error.asked == f"be rank {rank} of {size}, as MPICH says"
    assert found.partition("=")[0] in error.remedy


CHECK = r"""
import os
import mpi4py
mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
from mpi4py import MPI
from hpccomm.launch import check_library, check_world, detect
launch, vendor = detect(os.environ), MPI.get_vendor()[0]
check_library(launch, vendor=vendor, library=MPI.Get_library_version())
MPI.Init()
check_world(launch, rank=MPI.COMM_WORLD.rank, size=MPI.COMM_WORLD.size, vendor=vendor, environ=os.environ)
os.write(1, f"world of {MPI.COMM_WORLD.size}\n".encode())  # in one piece
"""


def test_matching_launcher_and_library_pass(mpi: Mpi) -> None:
    result = run_job(mpi, 2, [mpi.python, "-c", CHECK])
    assert result.returncode == 0, result
    assert result.stdout.count("world of 2") == 2


def test_launcher_of_another_family_is_refused(mpi: Mpi) -> None:
    other = next((o for o in known_mpis() if o.is_open_mpi != mpi.is_open_mpi and not o.missing), None)
    if other is None:
        pytest.skip("needs Open MPI and one of MPICH's relatives")
    result = run_job(mpi, 2, [other.python, "-c", CHECK])
    assert result.returncode != 0
    assert "LaunchError" in result.stderr
    assert "world of" not in result.stdout
    assert ("PMI_SIZE" if other.is_open_mpi else "OMPI_COMM_WORLD_SIZE") in result.stderr
