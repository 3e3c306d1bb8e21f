"""The table of jobs: what each is for, what it starts from, which fields it takes, which pieces it is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hpccomm.jobs import parts

_ACCOUNT = (
    "job_name",
    "account",
    "partition",
    "qos",
    "reservation",
    "constraint",
    "mem",
    "time",
    "dependency",
    "output",
)
_RANKS = ("nodes", "ntasks", "ntasks_per_node", "cpus_per_task")
_BENCH = (*_ACCOUNT, *_RANKS, "modules", "python", "backends", "results", "arguments")
_TRAIN = (*_ACCOUNT, *_RANKS, "lead", "modules", "python", "program", "results", "spares", "relaunches", "arguments")
_CONTAINER = (*_BENCH, "gpus_per_node", "mpi_plugin", "image", "container_options")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One row of the table.

    Attributes:
        name: What it is called; the file in ``jobs/`` is ``NAME.sbatch``.
        summary: What it does.
        start: What starts the ranks.
        needs: What must be there.
        takes: The fields that it has.
        defaults: Values of fields that are not given.
        body: Pieces of bash, in order.
        after: The job that must run before, whose number it takes.
    """

    name: str
    summary: str
    start: str
    needs: str
    takes: tuple[str, ...]
    defaults: Mapping[str, Any]
    body: tuple[str, ...]
    after: str = ""


_SMALL = {"nodes": 2, "ntasks_per_node": 2, "cpus_per_task": 1, "time": "10:00"}
_ENVIRONMENT = {"python": "python", "results": "hpccomm-results"}
_DEFAULTS = {**_SMALL, **_ENVIRONMENT}
_PROGRAM = {"program": "jobs/train.py", "lead": 120, "spares": 0, "relaunches": 3}
_SIZES = ("4:16K", "64K:1M", "4M:64M")
_CASES = {"backends": ("mpi4py", "gloo", "hierarchical(mpi4py, gloo)"), "sizes": _SIZES}


def _measuring(name: str, *pieces: str, python: str = '"${python[@]}"', first: str = "") -> tuple[str, ...]:
    """Give the body of a job that runs the benchmark once, with arguments that stand before all others."""
    arguments = parts.BENCH.replace("<job>", name).replace("<first>", f"{first} " if first else "")
    return (parts.SIZES, *pieces, arguments, _benchmark(python))


def _benchmark(python: str) -> str:
    return parts.RUN.replace("<python>", python)


def _training(name: str, start: str, run: str) -> tuple[str, ...]:
    """Give the body of a job that trains."""
    running = parts.RELAUNCH.replace("<run>", run.strip("\n"))
    return (parts.SIZES, parts.PYTHON, parts.TRAIN.replace("<job>", name), start, running)


JOBS = {
    job.name: job
    for job in (
        Job(
            name="bench-cpu",
            summary="the benchmark on CPU nodes",
            start="srun",
            needs="srun --mpi=pmix for Open MPI, pmi2 for MPICH and Intel MPI",
            takes=(*_BENCH, "mpi_plugin"),
            defaults=_DEFAULTS,
            body=_measuring("bench-cpu", parts.PYTHON, parts.SRUN),
        ),
        Job(
            name="bench-gpu",
            summary="the benchmark with one task a GPU, on tensors in the GPUs' memory",
            start="srun",
            needs="what bench-cpu needs, and GPUs",
            takes=(*_BENCH, "gpus_per_node", "mpi_plugin"),
            defaults={**_DEFAULTS, "ntasks_per_node": 4, "gpus_per_node": 4},
            body=_measuring("bench-gpu", parts.GPUS, parts.PYTHON, parts.SRUN, first="--device cuda"),
        ),
        Job(
            name="pairs",
            summary="every node with every other one, as a heat map of latency and bandwidth",
            start="srun",
            needs="what bench-cpu needs",
            takes=(*_BENCH, "mpi_plugin"),
            defaults={**_DEFAULTS, "ntasks_per_node": 1},
            body=_measuring("pairs", parts.PYTHON, parts.SRUN, first="--pairs 4M"),
        ),
        Job(
            name="bench-mpirun",
            summary="the benchmark where srun cannot join the ranks",
            start="mpirun",
            needs="the mpirun of Open MPI, MPICH or Intel MPI",
            takes=(*_BENCH, "mpirun", "mpirun_options"),
            defaults=_DEFAULTS,
            body=_measuring("bench-mpirun", parts.PYTHON, parts.MPIRUN),
        ),
        Job(
            name="bench-apptainer",
            summary="the benchmark in an Apptainer image",
            start="srun",
            needs="apptainer or singularity on the nodes, hpccomm and an MPI in the image",
            takes=_CONTAINER,
            defaults={**_DEFAULTS, "image": "hpccomm.sif"},
            body=_measuring("bench-apptainer", parts.GPUS_IF_ANY, parts.APPTAINER, parts.SRUN),
        ),
        Job(
            name="bench-pyxis",
            summary="the benchmark in an image that Pyxis and Enroot run",
            start="srun",
            needs="Slurm with Pyxis, hpccomm and an MPI in the image",
            takes=_CONTAINER,
            defaults={**_DEFAULTS, "image": "hpccomm.sqsh"},
            body=_measuring(
                "bench-pyxis", parts.GPUS_IF_ANY, parts.PYXIS, parts.SRUN, python='"${options[@]}" "$PYTHON"'
            ),
        ),
        Job(
            name="sweep",
            summary="an array job: each backend at each range of sizes, one after the other",
            start="srun",
            needs="what bench-cpu needs",
            takes=(*_BENCH, "mpi_plugin", "sizes"),
            defaults={**_DEFAULTS, **_CASES, "output": "hpccomm-sweep-%A-%a.out"},
            body=(parts.SIZES, parts.PYTHON, parts.SRUN, parts.CASE, _benchmark('"${python[@]}"')),
        ),
        Job(
            name="sweep-collect",
            summary="the results of a sweep in one table; fails where one is missing",
            start="-",
            needs="the number of the sweep's job",
            takes=(*_ACCOUNT, "modules", "python", "results", "sweep"),
            defaults={**_ENVIRONMENT, "nodes": 1, "ntasks_per_node": 1, "time": "5:00"},
            body=(parts.PYTHON, parts.COLLECT),
            after="sweep",
        ),
        Job(
            name="train",
            summary="training that goes on after its time, requeued, and after the loss of a host, on the others",
            start="srun",
            needs="what bench-cpu needs, scikit-learn for jobs/train.py, and a Slurm that lets jobs be requeued",
            takes=(*_TRAIN, "mpi_plugin"),
            defaults={**_DEFAULTS, **_PROGRAM},
            body=_training("train", parts.SRUN, parts.IN_FRONT),
        ),
        Job(
            name="train-mpirun",
            summary="the same training where srun cannot join the ranks",
            start="mpirun",
            needs="what train needs, but the mpirun of Open MPI or MPICH, or the mpiexec of Intel MPI in MPIRUN",
            takes=(*_TRAIN, "mpirun", "mpirun_options"),
            defaults={**_DEFAULTS, **_PROGRAM},
            body=_training("train-mpirun", parts.MPIRUN, parts.BEHIND),
        ),
    )
}
"""The jobs by name."""
