"""From a job's name and fields to the text of its batch script; pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from hpccomm.errors import OptionError
from hpccomm.jobs import checks, parts
from hpccomm.jobs.catalogue import JOBS, Job
from hpccomm.jobs.fields import ASKED, EDIT, SBATCH, Fields, flag, goes
from hpccomm.jobs.quoting import sbatch_word, shell_array, shell_word

END_OF_EDIT = "# Nothing below needs an edit."
_EDITS = {
    "modules": "environment modules to load, e.g. (gcc openmpi)",
    "python": "the python that has hpccomm; `python` is that of the environment in which sbatch is called",
    "mpirun": "the mpirun of that python's MPI; empty: the one beside that python, else the first in PATH",
    "mpirun_options": "placement and binding, e.g. (--map-by ppr:4:node:PE=8 --bind-to core); empty: unbound",
    "mpi_plugin": "NAME of srun --mpi=NAME; empty: the one that fits that python's MPI",
    "image": "the container image",
    "container_options": "more options of the container, e.g. mounts",
    "backends": "backend expressions, each in quotes; empty: those that work there",
    "sizes": "first and last size of a case; the array has backends x sizes cases: sbatch --array=0-N",
    "program": "the program that all ranks run, from the folder in which sbatch is called",
    "results": "folder for the results, on a file system that all nodes share",
    "spares": "of the nodes, how many stand by for those that are lost; without one, fewer ranks go on",
    "relaunches": "how often the program is started again, in this job, on the hosts that are left",
    "sweep": "number of the sweep's job; or the script's first argument",
    "arguments": "options of python -m hpccomm.bench; arguments of the script are added",
}
_IN_CONTAINER = {"python": "the image's python"}
_OF_PROGRAM = {"arguments": "options of the program; arguments of the script are added"}


def render(name: str, values: Fields | None = None) -> str:
    """Write a job's batch script.

    Args:
        name: Of the job; `JOBS` has them all.
        values: What is asked of it; the job's defaults are taken for the rest.

    Raises:
        OptionError: No such job, a field that it does not have, a value that does not fit or that a script cannot
            hold, or two that contradict each other.
        ExpressionError: A backend expression that does not parse, or names a backend that there is not.
    """
    job = find(name)
    found = checks.filled(job, values or Fields())
    lines = [
        "#!/bin/bash",
        *_directives(job, found),
        *_about(job),
        "",
        "set -euo pipefail",
        "",
        *_edits(job, found),
        END_OF_EDIT,
    ]
    return "\n".join(lines) + "\n" + "".join((parts.BEGIN, *job.body))


def find(name: str) -> Job:
    """Give a job by its name.

    Raises:
        OptionError: There is none.
    """
    if name not in JOBS:
        raise OptionError(ASKED, found=f"no job {name!r}", remedy=f"name one of {', '.join(JOBS)}")
    return JOBS[name]


def _directives(job: Job, values: Fields) -> Iterator[str]:
    for name in goes(SBATCH):
        value = getattr(values, name)
        if value is not None:
            word = value if isinstance(value, int) else sbatch_word(flag(name), value)
            yield f"#SBATCH {flag(name)}={word}"
    if "sizes" in job.takes:
        yield f"#SBATCH --array=0-{checks.cases(values) - 1}%1"
    if values.lead is None:
        yield "#SBATCH --no-requeue"
        return
    to_the_shell = "B:" if "mpirun" in job.takes else ""
    yield f"#SBATCH --signal={to_the_shell}USR1@{values.lead}"
    yield "#SBATCH --requeue"
    yield "#SBATCH --no-kill"
    yield "#SBATCH --open-mode=append"


def _about(job: Job) -> Iterator[str]:
    of = "the program" if "program" in job.takes else "python -m hpccomm.bench"
    arguments = f" [OPTION of {of} ...]" if "arguments" in job.takes else ""
    if job.after:
        arguments = " NUMBER"
        usage = f"sbatch --dependency=afterany:NUMBER [--account=NAME ...] {job.name}.sbatch{arguments}"
    else:
        usage = f"sbatch [--account=NAME --nodes=N --time=TIME ...] {job.name}.sbatch{arguments}"
    yield "#"
    text = f"{job.summary[0].upper()}{job.summary[1:]}. Needs {job.needs}."
    yield from textwrap.wrap(text, 100, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    yield f"#     {usage}"
    yield "# sbatch's flags override the lines above. Exit status 0: the results are complete."


def _edits(job: Job, values: Fields) -> Iterator[str]:
    hints = _EDITS | (_IN_CONTAINER if "image" in job.takes else {}) | (_OF_PROGRAM if "program" in job.takes else {})
    for name in goes(EDIT):
        if name in job.takes:
            yield f"{name.upper()}={_assigned(name, getattr(values, name))} # EDIT: {hints[name]}"


def _assigned(name: str, value: str | int | tuple[str, ...] | None) -> str:
    if value is None or value == "":
        return "''"
    if isinstance(value, int):
        return str(value)
    return shell_array(flag(name), value) if isinstance(value, tuple) else shell_word(flag(name), value)
