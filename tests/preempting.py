"""Training jobs on a real Slurm that are warned, as they are before the end of their time, or lose hosts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.cluster.slurm import JobEnd, Slurm
from harness import ROOT, Mpi, run_job
from hpccomm.jobs import Fields, render
from waiting import comes_true

JOB_S = 200.0  # for one start on a machine that does much else; it takes 10 s
TO_THE_SHELL = {"train": (), "train-mpirun": ("--batch",)}  # scancel's options, as the scripts' --signal has B: or not


@dataclass
class Training:
    """A training job.

    Attributes:
        slurm: Where it runs.
        name: Of the job in `jobs/`.
        folder: Where its files are.
        number: Slurm's.
    """

    slurm: Slurm
    name: str
    folder: Path
    number: int

    @classmethod
    def submit(
        cls,
        slurm: Slurm,
        name: str,
        folder: Path,
        env: Mapping[str, str],
        *arguments: str,
        options: Sequence[str] = (),
        **fields: Any,
    ) -> Training:
        """Submit it, of one rank on each of two hosts unless the job's fields or sbatch's options say otherwise."""
        program = str(ROOT / "jobs" / "train.py")
        values = Fields(**{"ntasks_per_node": 1, "program": program, **fields})
        rendered = folder / f"{name}.sbatch"
        rendered.write_text(render(name, values))
        return cls(slurm, name, folder, slurm.submit(rendered, *options, arguments=arguments, env=env, cwd=folder))

    @property
    def output(self) -> str:
        """What it has said so far, in all its starts."""
        return "".join(file.read_text() for file in self.folder.glob(f"*-{self.number}.out"))

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint."""
        return self.folder / "hpccomm-results" / f"{self.name}-{self.number}.pt"

    @property
    def begun(self) -> list[tuple[int, int]]:
        """At which epoch, and after how many of its rows, its launches and starts have begun."""
        found = re.findall(r"begins at epoch (\d+), after (\d+) rows", self.output)
        return [(int(epoch), int(rows)) for epoch, rows in found]

    def warn(self, start: int, *, after_s: float = 0.0) -> None:
        """Warn it in one of its starts, counted from 0, some time after it has begun to train there."""
        self._until(lambda: len(self.begun) > start)
        time.sleep(after_s)
        warning = ["scancel", "--signal=USR1", *TO_THE_SHELL[self.name], str(self.number)]
        self.slurm.cluster.run(warning)

    def lose(self, host: str, launch: int) -> float:
        """Kill a host once a launch, counted from 0, has ended an epoch, and give the seconds until the next trains."""
        begins = re.compile(r"begins at epoch.*?\nepoch", re.DOTALL)
        self._until(lambda: len(begins.findall(self.output)) > launch)
        killed = time.monotonic()
        self.slurm.cluster.kill(host)
        self._until(lambda: len(self.begun) > launch + 1)
        return time.monotonic() - killed

    def _until(self, is_so: Callable[[], bool]) -> None:
        comes_true(lambda: is_so() or "train in job " in self.output, JOB_S)  # which it says when it gives up
        if not is_so():
            raise RuntimeError(self.output)

    def end(self) -> JobEnd:
        """Wait for its end."""
        return self.slurm.wait(self.number, timeout_s=2 * JOB_S)

    @property
    def warned(self) -> list[str]:
        """Where it has ended because of a warning."""
        return re.findall(r"warned: ends at (.*)", self.output)


def straight(mpi: Mpi, folder: Path, *arguments: str) -> Path:
    """Train on two ranks without a warning, and give the checkpoint."""
    checkpoint = folder / "straight.pt"
    argv = [mpi.python, str(ROOT / "jobs" / "train.py"), "--checkpoint", str(checkpoint), *arguments]
    result = run_job(mpi, 2, argv, timeout_s=2 * JOB_S)
    if result.returncode:
        raise RuntimeError(str(result))
    return checkpoint
