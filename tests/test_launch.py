"""Launcher and hints from variables; contradictions are refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import Mpi, run_job
from hpccomm.errors import LaunchError
from hpccomm.launch import LAUNCHERS, detect
from launch_starts import (
    BARE_STEP,
    FLUX,
    HYDRA,
    IMPI,
    OMPI4,
    OMPI5,
    STARTS,
    STEP,
    STYLE,
    Environ,
    hydra,
    open_mpi_5,
    step,
    torch_variables,
    torchrun,
)


@pytest.mark.parametrize(("environ", "name", "hints"), STARTS.values(), ids=STARTS)
def test_launcher_and_hints(environ: Environ, name: str, hints: tuple[int | None, ...]) -> None:
    launch = detect(environ)
    assert launch.launcher.name == name
    assert (launch.rank, launch.size, launch.local_rank, launch.local_size) == hints
    assert launch.hint_rank == (hints[0] or 0)
    assert launch.uses_mpi == (name not in ("torchrun", STYLE))


@pytest.mark.parametrize("start", ["sbatch", "salloc"])
def test_process_of_an_allocation_is_noted_as_alone(start: str) -> None:
    (note,) = detect(STARTS[start][0]).notes
    assert "Slurm allocation" in note


@pytest.mark.parametrize(
    ("start", "outer"),
    [
        ("torchrun by srun", "a Slurm step"),
        ("torchrun by mpirun", "Open MPI 5's mpirun"),
        ("open-mpi-5, its daemon's step", "a Slurm step"),
        ("mpich in srun -n2 --pty bash", "a Slurm step"),
    ],
)
def test_permitted_nesting_is_noted(start: str, outer: str) -> None:
    environ, name, _ = STARTS[start]
    assert f"{name} inside {outer}" in detect(environ).notes


@pytest.mark.parametrize("start", ["open-mpi-5", "srun pmix", "torchrun", "alone", "srun, Cray's plugin"])
def test_plain_start_has_no_notes(start: str) -> None:
    assert detect(STARTS[start][0]).notes == ()


def test_ranks_that_mpi_cannot_join_are_joined_by_torchs_variables() -> None:
    (note,) = detect(BARE_STEP | torch_variables(2, 4)).notes
    assert "without PMI" in note


def refusal(environ: Environ) -> LaunchError:
    with pytest.raises(LaunchError) as caught:
        detect(environ)
    assert caught.value.everywhere
    return caught.value


@pytest.mark.parametrize(
    ("environ", "both"),
    [
        (torchrun(1, 4, 1, 2) | step(1, 2, 1, "2"), ("torchrun", "a Slurm step")),
        (torchrun(1, 4, 1, 2) | open_mpi_5(1, 2, 1, 2), ("torchrun", OMPI5)),
        (torchrun(1, 4, 1, 2) | hydra(0, 2, 0, 2), ("torchrun", HYDRA)),
        (torchrun(1, 4, 1, 2) | FLUX, ("torchrun", "a Flux job")),
        (open_mpi_5(0, 1, 0, 1) | step(1, 2, 1, "2"), (OMPI5, "a Slurm step")),
        (hydra(0, 1, 0, 1) | step(1, 4, 1, "2(x2)"), (HYDRA, "a Slurm step")),
        (open_mpi_5(0, 1, 0, 1) | hydra(0, 2, 0, 2), (OMPI5, HYDRA)),
    ],
)
def test_launcher_in_each_of_several_processes_is_refused(environ: Environ, both: tuple[str, str]) -> None:
    error = refusal(environ)
    assert all(name in error.found for name in both)
    assert "several processes on this node" in error.found
    assert ("--ntasks-per-node=1" in error.remedy) == (both[0] == "torchrun")
    assert ("call mpirun itself" in error.remedy) == (both[0] != "torchrun")


MPI_STARTS = {"open-mpi-5": (1, 2), "mpich": (1, 2), "srun pmix": (2, 4), "srun none": (2, 4), "flux": (5, 8)}


@pytest.mark.parametrize("start", MPI_STARTS)
@pytest.mark.parametrize(("name", "offset"), [("RANK", -1), ("RANK", 1), ("WORLD_SIZE", -1), ("WORLD_SIZE", 1)])
def test_torch_variable_with_another_value_is_refused(start: str, name: str, offset: int) -> None:
    environ, (rank, size) = STARTS[start][0], MPI_STARTS[start]
    wrong = {"RANK": rank, "WORLD_SIZE": size}[name] + offset
    error = refusal(environ | torch_variables(rank, size) | {name: str(wrong)})
    launcher = detect(environ).launcher
    ours = launcher.rank if name == "RANK" else launcher.size
    assert f"{name}={wrong}" in error.found
    assert f"{ours}={environ[ours]}" in error.found
    assert name in error.remedy


def test_singletons_may_carry_torch_variables_of_their_own() -> None:
    launch = detect(BARE_STEP | torch_variables(0, 1) | {"HPCCOMM_SINGLETON": "1"})
    assert (launch.launcher.name, launch.size, launch.singleton) == (STEP, 4, True)


NUMBERS = [
    (start, name)
    for start in ("open-mpi-5", "intel", "srun pmix", "pals", "flux", "torchrun", "by hand", "torchrun by srun")
    for row in LAUNCHERS
    for name in (row.rank, row.size, row.local_rank, row.local_size, row.node_rank)
    if row.name == STARTS[start][1] and name in STARTS[start][0]
]


@pytest.mark.parametrize(("start", "name"), NUMBERS)
@pytest.mark.parametrize("value", ["x", "-1", "1.0", "+1", " 1", "1_0", "\u0661", "9" * 5000])
def test_malformed_number_is_refused_by_name(start: str, name: str, value: str) -> None:
    error = refusal(STARTS[start][0] | {name: value})
    assert f"{name}=" in error.found
    assert name in error.remedy


@pytest.mark.parametrize("value", ["", "2(x2", "2(x)", "2,,1", "(x2)", "two"])
def test_malformed_list_of_tasks_is_refused(value: str) -> None:
    environ = step(2, 4, 0, value, 1)
    if value:
        assert "SLURM_STEP_TASKS_PER_NODE" in refusal(environ).found
    else:
        assert detect(environ).local_size is None


@pytest.mark.parametrize(
    ("environ", "name"),
    [
        (open_mpi_5(2, 2, 0, 2), "OMPI_COMM_WORLD_RANK=2"),
        (open_mpi_5(1, 2, 2, 2), "OMPI_COMM_WORLD_LOCAL_RANK=2"),
        (torch_variables(4, 4), "RANK=4"),
    ],
)
def test_rank_beyond_its_size_is_refused(environ: Environ, name: str) -> None:
    assert name in refusal(environ).found


@pytest.mark.parametrize(("value", "singleton"), [("", False), ("0", False), ("1", True)])
def test_singleton_switch(value: str, singleton: bool) -> None:
    assert detect({"HPCCOMM_SINGLETON": value}).singleton is singleton


def test_other_values_of_the_singleton_switch_are_refused() -> None:
    assert "HPCCOMM_SINGLETON='yes'" in refusal({"HPCCOMM_SINGLETON": "yes"}).found


KNOWN = sorted(
    {name for environ, _, _ in STARTS.values() for name in environ}
    | {name for row in LAUNCHERS for name in (*row.marks, row.rank, row.size, row.local_rank, row.local_size) if name}
    | {"HPCCOMM_SINGLETON", "SLURM_PTY_PORT"}
)


@given(st.dictionaries(st.sampled_from(KNOWN), st.sampled_from(["0", "1", "2", "2(x2)"]) | st.text(max_size=8)))
def test_any_values_give_a_launch_or_a_launch_error(environ: Environ) -> None:
    try:
        launch = detect(environ)
    except LaunchError as error:
        assert error.everywhere
        return
    assert launch.launcher.started(environ)
    assert 0 <= launch.hint_rank < (launch.size or 10**9)


@given(st.dictionaries(st.sampled_from(KNOWN), st.sampled_from(["0", "1", "2", "3", "2(x2)"])))
def test_foreign_variables_change_nothing(environ: Environ) -> None:
    foreign = {"PATH": "/usr/bin", "OMP_NUM_THREADS": "7", "OMPI_ALLOW_RUN_AS_ROOT": "1", "PMIX_MCA_psec": "native"}
    try:
        launch = detect(environ)
    except LaunchError as error:
        assert str(refusal(environ | foreign)) == str(error)
    else:
        assert detect(environ | foreign) == launch


def test_every_row_is_reached_and_has_a_name_of_its_own() -> None:
    assert {name for _, name, _ in STARTS.values()} == {row.name for row in LAUNCHERS}
    assert len({row.name for row in LAUNCHERS}) == len(LAUNCHERS)


SHOW = r"""
import json, os
from hpccomm.launch import detect
launch = detect(os.environ)
hints = [launch.rank, launch.size, launch.local_rank, launch.local_size]
os.write(1, (json.dumps([launch.launcher.name, *hints]) + "\n").encode())  # in one piece
"""


def test_hints_of_a_real_job(mpi: Mpi) -> None:
    result = run_job(mpi, 2, [mpi.python, "-c", SHOW])
    assert result.returncode == 0, result
    shown = sorted(json.loads(line) for line in result.stdout.splitlines() if line.startswith("["))
    assert [hints for _, *hints in shown] == [[0, 2, 0, 2], [1, 2, 1, 2]]
    names = (OMPI5, OMPI4) if mpi.is_open_mpi else (HYDRA, IMPI)
    assert {name for name, *_ in shown} <= set(names)
