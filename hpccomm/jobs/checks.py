"""What of a job's fields fits together; contradictions are refused before any text is written."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from hpccomm import expression
from hpccomm.backends.names import check_names
from hpccomm.bench.arguments import parse as parse_bench
from hpccomm.errors import OptionError
from hpccomm.jobs.catalogue import JOBS, Job
from hpccomm.jobs.fields import ASKED, Fields, flag, given
from hpccomm.units import parse_bytes

_NUMBERS = ("nodes", "ntasks", "ntasks_per_node", "cpus_per_task", "gpus_per_node", "sweep", "lead")
_COUNTS = ("spares", "relaunches")  # may be 0
_LARGEST = 10**6
_LONGEST_LEAD_S = 65535  # that sbatch takes
_EARLY_S = 60
_MOST_CASES = 1000  # in an array, as Slurm is set up by default
_TIME = re.compile(r"(\d{1,20}-\d{1,2}|\d{1,20})(:\d{1,2}){0,2}|UNLIMITED", re.ASCII)
_MEMORY = re.compile(r"\d+[KMGT]?", re.ASCII)
_OURS = ("--json", "--help", "-h", "--version")  # options that the script gives, or that run nothing


def filled(job: Job, values: Fields) -> Fields:
    """Give the fields of a job with its defaults, checked.

    Raises:
        OptionError: A field that the job does not have, a value that does not fit, or two that contradict each other.
        ExpressionError: A backend expression that does not parse.
    """
    _refuse_strangers(job, given(values))
    for name in (*_NUMBERS, *_COUNTS):
        most = _LONGEST_LEAD_S if name == "lead" else _LARGEST
        _check_number(name, getattr(values, name), least=0 if name in _COUNTS else 1, most=most)
    name = f"hpccomm-{job.name}"  # in the output too, not %x: of a job's name / would make folders that there are not
    defaults: dict[str, Any] = {"job_name": name, "output": f"{name}-%j.out", **job.defaults}
    gpus = values.gpus_per_node or ("gpus_per_node" in defaults and values.ntasks_per_node)
    if gpus:
        defaults |= {"gpus_per_node": gpus, "ntasks_per_node": gpus}
    found = replace(Fields(**defaults), **given(values))
    _check_texts(found)
    _check_tasks(found)
    _check_lead(found)
    _check_bench(job, found)
    return found


def cases(values: Fields) -> int:
    """Give the number of cases of a sweep."""
    return len(values.backends) * len(values.sizes)


def _refuse_strangers(job: Job, names: dict[str, Any]) -> None:
    for name in names:
        if name not in job.takes:
            others = [one.name for one in JOBS.values() if name in one.takes]
            _refuse(f"{flag(name)}, which {job.name} does not have", f"leave it out; it is for {', '.join(others)}")


def _check_number(name: str, value: object, *, least: int, most: int) -> None:
    if value is not None and not (type(value) is int and least <= value <= most):
        _refuse(f"{flag(name)} {value!r}", f"give a whole number from {least} to {most}")


def _check_texts(values: Fields) -> None:
    for name in ("python", "results", "image", "program"):
        if getattr(values, name) == "":
            _refuse(f"{flag(name)} without a value", "leave it out, or give one")
    for name in ("python", "results", "program", "image"):
        value = getattr(values, name) or ""
        if value.startswith("-"):
            _refuse(f"{flag(name)} {value!r}, which commands take for an option", f"write ./{value}")
    if values.time is not None and (not _TIME.fullmatch(values.time) or not values.time.strip("0:-")):
        _refuse(f"--time {values.time!r}", "write it like 30 (minutes), 30:00, 2:00:00, 1-12 (days-hours) or UNLIMITED")
    if values.time is not None and 60 * _LARGEST < _seconds(values.time) < math.inf:
        _refuse(f"--time {values.time!r}", f"give at most {_LARGEST} minutes, or UNLIMITED")
    if values.mem is not None and not _MEMORY.fullmatch(values.mem):
        _refuse(f"--mem {values.mem!r}", "write it like 64G, or 0 for all of a node")


def _check_tasks(values: Fields) -> None:
    nodes, per_node, gpus = values.nodes or 1, values.ntasks_per_node or 1, values.gpus_per_node
    if values.ntasks not in (None, nodes * per_node):
        _refuse(
            f"--ntasks {values.ntasks}, but --nodes {nodes} with --ntasks-per-node {per_node} makes {nodes * per_node}",
            "leave --ntasks out, or correct the other two",
        )
    if (values.spares or 0) >= nodes:
        _refuse(f"--spares {values.spares} of --nodes {nodes}", "leave at least one node to train on")
    if gpus not in (None, per_node):
        _refuse(
            f"--gpus-per-node {gpus} with --ntasks-per-node {per_node}, but each task has one GPU",
            "give one of the two, or both the same number",
        )


def _check_lead(values: Fields) -> None:
    if values.lead is not None and values.time is not None and values.lead + _EARLY_S >= _seconds(values.time):
        _refuse(
            f"--lead {values.lead} (seconds) with --time {values.time}, and Slurm may warn {_EARLY_S} seconds early",
            "give more time, or a shorter lead: each start would be warned as it begins, and requeued",
        )


def _seconds(time: str) -> float:
    """Read a time limit as Slurm writes it."""
    if time == "UNLIMITED":
        return math.inf
    days, dash, clock = time.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)  # the last ones may be missing
    return 86400 * int(days or 0) + sum(part * unit for part, unit in zip(parts, units, strict=False))


def _check_bench(job: Job, values: Fields) -> None:
    for text in values.backends:
        _check_backend(text)
    for text in values.sizes:
        _check_range(text)
    if cases(values) > _MOST_CASES:
        _refuse(f"{cases(values)} cases", f"give fewer backends or sizes: at most {_MOST_CASES} cases")
    if "arguments" in job.takes:
        for option in _foreign(job, values.arguments):
            _refuse(f"{option} among the options", f"leave it out: {job.name} does not need it")
    if "arguments" in job.takes and not values.program:
        for text in parse_bench(values.arguments).backends:
            _check_backend(text)


def _check_backend(text: str) -> None:
    if not text.startswith("@"):  # a file may be written until the job runs
        check_names(expression.parse(text, source="--backend"))


def _foreign(job: Job, arguments: tuple[str, ...]) -> Iterator[str]:
    of_case = ("--backend", "--algorithm", "-b", "--minbytes", "-e", "--maxbytes") if "sizes" in job.takes else ()
    options = (*_OURS, *of_case)
    yield from (one for one in arguments if one.partition("=")[0] in options)


def _check_range(text: str) -> None:
    first, colon, last = text.partition(":")
    if not colon or not 1 <= parse_bytes(first) <= parse_bytes(last):
        _refuse(f"the sizes {text!r}", "write first and last size, such as 4:64K")


def _refuse(found: str, remedy: str) -> NoReturn:
    raise OptionError(ASKED, found=found, remedy=remedy)
