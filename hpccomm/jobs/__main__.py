"""The command line: ``python -m hpccomm.jobs list|render``, and what the scripts call: plugin, verify, collect."""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from hpccomm.errors import ExpressionError, HpccommError, JobError, OptionError
from hpccomm.jobs import plugin, results, table
from hpccomm.jobs.catalogue import JOBS
from hpccomm.jobs.fields import Fields, flag
from hpccomm.jobs.script import render
from hpccomm.output import write

_PROGRAM = "python -m hpccomm.jobs"
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend", "default": []}
_WORDS: dict[str, Any] = {"type": shlex.split, "default": []}  # options of other programs, as one text
_EPILOG = "Options of the benchmark stand last, after --: python -m hpccomm.jobs render bench-cpu --nodes 4 -- -e 1G"


def main(argv: Sequence[str]) -> int:
    """Do what the arguments ask for.

    Args:
        argv: Arguments after ``python -m hpccomm.jobs``.

    Returns:
        Exit status: 0, 1 if what was asked failed, 2 for arguments that do not fit, or text that cannot be written,
        130 after Ctrl-C.
    """
    own, arguments = _divided(argv)
    options = _parser().parse_args(own)
    options.arguments = arguments
    try:
        return int(options.action(options))
    except HpccommError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2 if isinstance(error, (OptionError, ExpressionError)) else 1
    except KeyboardInterrupt:
        return 130


def _divided(argv: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Cut at the first ``--``."""
    place = list(argv).index("--") if "--" in argv else len(argv)
    return argv[:place], list(argv[place + 1 :])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(_PROGRAM, description="Slurm jobs: choose one, render it, submit it.")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    actions.add_parser("list", help="show the jobs").set_defaults(action=_list)
    one = actions.add_parser("render", help="write a job's script, or submit it", epilog=_EPILOG, allow_abbrev=False)
    one.set_defaults(action=_render)
    one.add_argument("job", help=", ".join(JOBS))
    for row in fields(Fields):
        if row.name != "arguments":
            one.add_argument(flag(row.name), **_argument(row))
    one.add_argument("--submit", action="store_true", help="submit it with sbatch instead of writing it out")
    for name, action, text in (
        ("plugin", _plugin, "read srun --mpi=list, and write the plugin for this python's MPI"),
        ("verify", _verify, "see that the benchmark's results are complete"),
        ("collect", _collect, "join the results of a sweep's cases"),
    ):
        one = actions.add_parser(name, help=text)
        one.set_defaults(action=action)
        if name != "plugin":
            one.add_argument("path", type=Path)
        if name == "verify":
            one.add_argument("--ranks", type=int, required=True)
    return parser


def _argument(row: Field[Any]) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": int} if "int" in str(row.type) else {}
    if row.default == ():
        kind = _WORDS if row.name.endswith("options") else _SEVERAL
    return {**kind, "help": row.metadata["help"], "metavar": row.metadata.get("metavar", "N")}


def _list(_: argparse.Namespace) -> int:
    return write("\n".join(table.jobs()) + "\n", program=_PROGRAM)


def _render(options: argparse.Namespace) -> int:
    asked: dict[str, Any] = {row.name: getattr(options, row.name) for row in fields(Fields)}
    asked = {name: tuple(value) if isinstance(value, list) else value for name, value in asked.items()}
    text = render(options.job, Fields(**asked))
    text = f"submitted {options.job}: job {_submit(text)}\n" if options.submit else text
    return write(text, program=_PROGRAM)


def _submit(text: str) -> str:
    try:
        ran = subprocess.run(["sbatch", "--parsable"], input=text, capture_output=True, text=True)
    except OSError as error:
        raise JobError("submit a job", found=f"sbatch: {error.strerror}", remedy="call it where Slurm is") from error
    if ran.returncode:
        raise JobError("submit a job", found=ran.stderr.strip(), remedy="correct the option that sbatch names")
    return ran.stdout.strip().partition(";")[0]


def _plugin(_: argparse.Namespace) -> int:
    vendor, library = plugin.mpi_of_this_python()
    name = plugin.choose(plugin.listed(sys.stdin.read()), vendor=vendor, library=library)
    return write(f"{name}\n", program=_PROGRAM)


def _verify(options: argparse.Namespace) -> int:
    count = results.verify(options.path, ranks=options.ranks)
    return write(f"complete: {count} results of {options.ranks} ranks in {options.path}\n", program=_PROGRAM)


def _collect(options: argparse.Namespace) -> int:
    found = results.collect(options.path)
    lines = [*table.sweep(found.results), "", f"{len(found.results)} results in {found.file}", ""]
    status = write("\n".join(lines), program=_PROGRAM)
    if found.faults:
        raise JobError(
            f"collect all cases of {options.path}",
            found="; ".join(found.faults),
            remedy="see the outputs of these cases, run them again with sbatch --array=CASE, copy the files case-… "
            f"from the folder of that job to {options.path}, and collect again",
        )
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
