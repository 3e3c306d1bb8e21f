"""Training jobs on a real Slurm that are warned again and again, as they are before the end of their time."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.cluster.slurm import JobEnd, Slurm
from harness import ROOT, Mpi, run_job

JOB_S = 200.0  # for one start on a machine that does much else; it takes 10 s
TO_THE_SHELL = {"train": (), "train-mpirun": ("--batch",)}  # scancel's options, as the scripts' --signal has B: or not


@dataclass
class Training:
    """A training job of two ranks on two hosts.

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
    def submit(cls, slurm: Slurm, name: str, folder: Path, env: Mapping[str, str], *arguments: str) -> Training:
        """Submit it."""
        rendered = folder / f"{name}.sbatch"
        text = (ROOT / "jobs" / rendered.name).read_text()
        rendered.write_text(text.replace("PROGRAM=jobs/", f"PROGRAM={ROOT}/jobs/"))
        options = ("--nodes=2", "--ntasks-per-node=1")
        return cls(slurm, name, folder, slurm.submit(rendered, *options, arguments=arguments, env=env, cwd=folder))

    @property
    def output(self) -> str:
        """What it has said so far, in all its starts."""
        return "".join(file.read_text() for file in self.folder.glob(f"*-{self.number}.out"))

    @property
    def checkpoint(self) -> Path:
        """Its checkpoint."""
        return self.folder / "hpccomm-results" / f"{self.name}-{self.number}.pt"

    def warn(self, start: int, *, after_s: float = 0.0) -> None:
        """Warn it in one of its starts, counted from 0, some time after it has begun to train there."""
        end = time.monotonic() + JOB_S
        while self.output.count("begins at epoch ") <= start:
            if time.monotonic() > end:
                raise TimeoutError(self.output)
            time.sleep(0.05)
        time.sleep(after_s)
        warning = ["scancel", "--signal=USR1", *TO_THE_SHELL[self.name], str(self.number)]
        self.slurm.cluster.run(warning)

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
