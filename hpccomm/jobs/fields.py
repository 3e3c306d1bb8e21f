"""What can be asked of a job, by sbatch's names where sbatch has one; values only, checked elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

ASKED = "render a Slurm job"
SBATCH, EDIT = "sbatch", "edit"


def _sbatch(text: str, metavar: str) -> Any:
    return field(default=None, metadata={"goes": SBATCH, "help": text, "metavar": metavar})


def _edit(text: str, metavar: str, default: Any = None) -> Any:
    return field(default=default, metadata={"goes": EDIT, "help": text, "metavar": metavar})


@dataclass(frozen=True, kw_only=True)
class Fields:
    """The fields of a job; one that is None or empty is left to the job.

    Those of sbatch become #SBATCH lines, which sbatch's own flags override; the others become EDIT lines.
    """

    job_name: str | None = _sbatch("name of the job", "NAME")
    account: str | None = _sbatch("account to charge", "NAME")
    partition: str | None = _sbatch("partition", "NAME")
    qos: str | None = _sbatch("quality of service", "NAME")
    reservation: str | None = _sbatch("reservation", "NAME")
    constraint: str | None = _sbatch("features that the nodes must have", "LIST")
    nodes: int | None = _sbatch("nodes", "N")
    ntasks_per_node: int | None = _sbatch("tasks, that is ranks, on each node", "N")
    cpus_per_task: int | None = _sbatch("CPUs of each task", "N")
    gpus_per_node: int | None = _sbatch("GPUs on each node", "N")
    mem: str | None = _sbatch("memory on each node: 0 for all of it, or e.g. 64G", "SIZE")
    time: str | None = _sbatch("time limit: minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM, D-HH:MM:SS or UNLIMITED", "TIME")
    dependency: str | None = _sbatch("what must be over before, e.g. afterany:123", "LIST")
    output: str | None = _sbatch("file for the job's output", "FILE")

    ntasks: int | None = field(default=None, metadata={"help": "all tasks, to be checked against the rest"})

    lead: int | None = field(default=None, metadata={"help": "seconds ahead of its end at which the job is warned"})

    modules: tuple[str, ...] = _edit("environment modules to load", "NAME", ())
    python: str | None = _edit("the python that has hpccomm", "PATH")
    mpirun: str | None = _edit("the mpirun of that python's MPI", "PATH")
    mpirun_options: tuple[str, ...] = _edit("options of mpirun instead of the script's placement", "'OPTIONS'", ())
    mpi_plugin: str | None = _edit("srun --mpi=NAME", "NAME")
    image: str | None = _edit("container image", "IMAGE")
    container_options: tuple[str, ...] = _edit("more options of apptainer exec, or of srun for Pyxis", "'OPTIONS'", ())
    backends: tuple[str, ...] = _edit("backend expressions to measure", "EXPR", ())
    sizes: tuple[str, ...] = _edit("ranges of sizes FIRST:LAST, a case each", "RANGE", ())
    program: str | None = _edit("the training program", "FILE")
    results: str | None = _edit("folder for the results", "FOLDER")
    spares: int | None = _edit("of the nodes, how many stand by for those that are lost", "N")
    relaunches: int | None = _edit("how often a job that is not done is started again on the hosts that it has", "N")
    sweep: int | None = _edit("number of the sweep's job", "ID")
    arguments: tuple[str, ...] = _edit("options of what the ranks run", "OPTION", ())


def given(values: Fields) -> dict[str, Any]:
    """Give the fields that have a value."""
    found = {one.name: getattr(values, one.name) for one in fields(values)}
    return {name: value for name, value in found.items() if value not in (None, ())}


def goes(place: str) -> list[str]:
    """Give the names of the fields that become lines of one kind, `SBATCH` or `EDIT`."""
    return [one.name for one in fields(Fields) if one.metadata.get("goes") == place]


def flag(name: str) -> str:
    """Give a field's name as an option."""
    return "--" + name.replace("_", "-")
