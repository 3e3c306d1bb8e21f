"""The scripts as bash reads them: no field is ever executed, and what does not fit ends them with the reason."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import ROOT
from hpccomm.jobs import Fields, parts, render
from hpccomm.jobs.catalogue import JOBS
from hpccomm.jobs.fields import EDIT, SBATCH, goes
from hpccomm.jobs.script import END_OF_EDIT

HOSTILE = [
    "$(touch pwned)",
    "`touch pwned`",
    "'",
    '"',
    "\\",
    "\n",
    "\r",
    "\t",
    "#",
    ";touch pwned;",
    "&&",
    "|",
    "~",
    "!",
]
HOSTILE += [
    "${HOME}",
    "$'",
    "'$(touch pwned)'",
    "\ntouch pwned\n",
    "\n#SBATCH --account=other\n",
    "*",
    "{a,b}",
    "<",
    ">",
]
HOSTILE += ["# EDIT: ", ")", "(touch pwned)", "\x1b[2J", "\x7f", "\x85", "\u2028", "é", " ", "-", "=", "%j", "a"]
texts = st.lists(st.sampled_from(HOSTILE) | st.text(max_size=3), min_size=1, max_size=6).map("".join)
texts = texts.filter(lambda text: text and "\0" not in text)
lines = texts.filter(lambda text: not any(one < " " or one == "\x7f" for one in text))
several = st.lists(texts, max_size=3).map(tuple)
hostile = st.fixed_dictionaries(
    {
        **dict.fromkeys(("job_name", "account", "partition", "qos", "reservation", "constraint", "output"), lines),
        **dict.fromkeys(("python", "results", "mpirun"), texts.filter(lambda text: not text.startswith("-"))),
        **dict.fromkeys(("modules", "mpirun_options"), several),
        "backends": several.map(lambda words: tuple(f"@{word}" for word in words)),
        "arguments": st.builds(lambda word: ("--csv", f"./{word}"), texts),
    }
)


def bash(script: str, cwd: Path, *options: str, **env: str) -> tuple[int, str, str]:
    """Give status, output and errors of a script, to the byte."""
    command = [shutil.which("bash") or "bash", "--noprofile", "--norc", *options, "/dev/stdin"]
    variables = {"PATH": os.environ["PATH"], **env}
    ran = subprocess.run(command, input=script.encode(), capture_output=True, cwd=cwd, env=variables, timeout=60)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


def as_sbatch_reads(line: str) -> str:
    """Read one option the way that sbatch does: quotes group, and a backslash keeps the next character."""
    found, quote, escaped = "", "", False
    for one in line:
        if escaped:
            found, escaped = found + one, False
        elif one == "\\":
            escaped = True
        elif quote or one in "'\"":
            found += one if quote not in ("", one) else ""
            quote = "" if one == quote else quote or one
        elif one.isspace() or one == "#":
            break
        else:
            found += one
    return found


@settings(max_examples=40)
@given(hostile)
def test_no_field_is_executed(values: dict[str, str | tuple[str, ...]]) -> None:
    text = render("bench-mpirun", Fields(**values))  # type: ignore[arg-type]
    head, end, _ = text.partition(END_OF_EDIT)
    options = [line for line in head.split("\n") if line.startswith("#SBATCH ")]
    read = dict(as_sbatch_reads(line.removeprefix("#SBATCH ")).partition("=")[::2] for line in options)
    for name in goes(SBATCH):
        if name in values:
            assert read["--" + name.replace("_", "-")] == values[name]

    names = [name for name in goes(EDIT) if name in values]
    show = "".join(f'printf "%s\\0" {name} "${{{name.upper()}[@]}}"\n' for name in names)
    with tempfile.TemporaryDirectory() as folder:
        assert bash(text, Path(folder), "-n") == (0, "", "")
        status, shown, errors = bash(f"{head}{end}\n{show}", Path(folder))
        assert (status, errors) == (0, "")
        assert not list(Path(folder).iterdir())
    expected = []
    for name in names:
        value = values[name]
        expected += [name, *(value if isinstance(value, tuple) else (value,))]
    assert shown.split("\0")[:-1] == expected


@pytest.mark.parametrize("name", JOBS)
def test_shellcheck_finds_nothing(name: str) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck")
    ran = subprocess.run(["shellcheck", ROOT / "jobs" / f"{name}.sbatch"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "")


PYTHON = sys.executable
JOB = {"PYTHONPATH": str(ROOT)}
JOB |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "2", "SLURM_NTASKS_PER_NODE": "2", "SLURM_NTASKS": "4"}
ENDS = [
    ("bench-cpu", Fields(), {"SLURM_JOB_ID": ""}, 2, "no SLURM_JOB_ID"),
    ("bench-cpu", Fields(), {"SLURM_NTASKS": "3"}, 2, "2 nodes of 2 tasks, which makes 4"),
    ("bench-cpu", Fields(python="/no/python"), {}, 127, "run /no/python"),
    ("bench-cpu", Fields(python="ls"), {}, 1, "import hpccomm in ls\n  found: ls: "),
    ("bench-gpu", Fields(), {}, 2, "0 GPUs and 2 tasks"),
    ("bench-gpu", Fields(), {"SLURM_GPUS_ON_NODE": "4"}, 2, "4 GPUs and 2 tasks"),
    ("bench-mpirun", Fields(mpirun="/no/mpirun", python=PYTHON), {}, 127, "run /no/mpirun"),
    ("bench-mpirun", Fields(mpirun="echo", python=PYTHON), {}, 2, "neither Open MPI nor Hydra: --version"),
    ("bench-apptainer", Fields(), {"PATH": "."}, 127, "neither apptainer nor singularity"),
    ("bench-pyxis", Fields(), {"PATH": "."}, 2, "this Slurm has no Pyxis"),
    ("sweep-collect", Fields(python=PYTHON), {}, 2, "no number of its job\n  do:    give it behind the script (sbatch"),
    ("train", Fields(python=PYTHON, program="no.py"), {}, 2, "train with no.py"),
    ("train", Fields(python=PYTHON, program="/", mpi_plugin="a", nodes=3, spares=2), {}, 2, "train with 2 spare nodes"),
]


@pytest.mark.parametrize(("name", "fields", "env", "status", "found"), ENDS)
def test_script_ends_with_the_reason(
    tmp_path: Path, name: str, fields: Fields, env: dict[str, str], status: int, found: str
) -> None:
    code, _, errors = bash(render(name, fields), tmp_path, **{**JOB, **env})
    assert code == status, errors
    assert found in errors
    assert "\n  do:    " in errors


TOOL = """#!/bin/sh
[ "$1" != --help ] || exec echo --container-image
until [ "$1" = ls ]; do shift; done
exec "$@"
"""


@pytest.mark.parametrize(("name", "tool"), [("bench-apptainer", "apptainer"), ("bench-pyxis", "srun")])
def test_image_without_hpccomm_is_told(tmp_path: Path, name: str, tool: str) -> None:
    (tmp_path / tool).write_text(TOOL)
    (tmp_path / tool).chmod(0o755)
    env = {**JOB, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    code, _, errors = bash(render(name, Fields(python="ls", image=".")), tmp_path, **env)
    assert code == 1, errors
    assert "import hpccomm in ls\n  found: ls: " in errors
    assert "\n  do:    install hpccomm in the image" in errors


HANDED_ON = r"""
taken=0
took() { taken=$((taken + 1)); }
trap took USR1
for number in 1 2 3; do
    kill -USR1 "$PPID"
    until ((taken == number)) || ! kill -0 "$PPID" 2>/dev/null; do sleep 0.02; done
done
sleep 0.2
echo ended
exit 7
"""
LAUNCH = rf"""
set -euo pipefail
start=(bash -c '{HANDED_ON}') ranks=2 python=(python) arguments=() json=x
scontrol() {{ echo "$@"; }}
for launch in 1 2; do
    {parts.BEHIND}
    echo "launch $launch: $status"
    kill -USR1 "$$"
done
"""


def test_warnings_are_handed_on_and_one_between_two_launches_has_the_job_requeued(tmp_path: Path) -> None:
    expected = "ended\nlaunch 1: 7\nrequeue 5\n"
    assert bash(LAUNCH, tmp_path, SLURM_JOB_ID="5") == (1, expected, "")
