"""Slurm jobs: which text comes from which fields, what is refused and why, and the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import ROOT
from hpccomm.errors import ExpressionError, HpccommError, OptionError
from hpccomm.jobs import Fields, render
from hpccomm.jobs.__main__ import main
from hpccomm.jobs.catalogue import JOBS

FILES = ROOT / "jobs"


def directives(text: str) -> list[str]:
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH ")]


def edits(text: str) -> dict[str, str]:
    lines = [line.partition(" # EDIT: ")[0] for line in text.splitlines() if " # EDIT: " in line]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


@pytest.mark.parametrize("name", JOBS)
def test_the_file_is_what_is_rendered_without_fields(name: str) -> None:
    again = f"python -m hpccomm.jobs render {name} > jobs/{name}.sbatch"
    assert (FILES / f"{name}.sbatch").read_text() == render(name), again


def test_there_is_a_file_and_a_line_of_the_readme_for_each_job() -> None:
    assert {file.name for file in FILES.iterdir() if file.is_file()} == {
        "README.md",
        "train.py",
        "train_parallel.py",
        *(f"{name}.sbatch" for name in JOBS),
    }
    readme = (FILES / "README.md").read_text()
    for job in JOBS.values():
        assert f"| `{job.name}` | {job.start} | {job.summary} |" in readme


def test_fields_become_lines() -> None:
    asked = Fields(nodes=4, gpus_per_node=8, time="30:00", account="abc", mem="64G", backends=("gloo", "ring(gloo)"))
    text = render("bench-gpu", asked)
    assert directives(text) == [
        "--job-name=hpccomm-bench-gpu",
        "--account=abc",
        "--nodes=4",
        "--ntasks-per-node=8",
        "--cpus-per-task=1",
        "--gpus-per-node=8",
        "--mem=64G",
        "--time=30:00",
        "--output=hpccomm-bench-gpu-%j.out",
        "--no-requeue",
    ]
    assert edits(text)["BACKENDS"] == "(gloo 'ring(gloo)')"
    assert edits(text)["PYTHON"] == "python"


def test_of_gpus_and_tasks_one_gives_the_other() -> None:
    for asked in (Fields(gpus_per_node=3), Fields(ntasks_per_node=3)):
        found = directives(render("bench-gpu", asked))
        assert {"--gpus-per-node=3", "--ntasks-per-node=3"} <= {*found}
    assert "--ntasks-per-node=5" in directives(render("bench-apptainer", Fields(gpus_per_node=5)))


def test_an_array_has_all_cases() -> None:
    text = render("sweep", Fields(backends=("gloo", "mpi4py"), sizes=("4:1K", "2K:1M", "1M:1M")))
    assert "--array=0-5%1" in directives(text)
    assert edits(text)["SIZES"] == "(4:1K 2K:1M 1M:1M)"


def test_training_is_warned_and_requeued() -> None:
    for name, signal in (("train", "USR1@300"), ("train-mpirun", "B:USR1@300")):
        text = render(name, Fields(lead=300, program="my.py", arguments=("--no-such", "x")))
        assert directives(text)[-4:] == [f"--signal={signal}", "--requeue", "--no-kill", "--open-mode=append"]
        assert (edits(text)["PROGRAM"], edits(text)["ARGUMENTS"]) == ("my.py", "(--no-such x)")


@pytest.mark.parametrize(("fields", "expected"), [(Fields(), ("0", "3")), (Fields(spares=1, relaunches=0), ("1", "0"))])
def test_training_has_spares_and_relaunches(fields: Fields, expected: tuple[str, str]) -> None:
    found = edits(render("train", fields))
    assert (found["SPARES"], found["RELAUNCHES"]) == expected


def test_all_tasks_may_be_said_too_if_they_fit() -> None:
    assert render("bench-cpu", Fields(nodes=3, ntasks_per_node=4, ntasks=12)) == render(
        "bench-cpu", Fields(nodes=3, ntasks_per_node=4)
    )


REFUSED = [
    ("bench", Fields(), "no job 'bench'", "bench-cpu, bench-gpu"),
    ("bench-cpu", Fields(gpus_per_node=2), "--gpus-per-node, which bench-cpu does not have", "bench-gpu, bench-app"),
    ("sweep-collect", Fields(nodes=2), "--nodes, which sweep-collect does not have", "leave it out"),
    ("bench-cpu", Fields(ntasks_per_node=4, ntasks=6), "--ntasks 6, but --nodes 2 with --ntasks-per-node 4 makes 8",
     "leave --ntasks out"),
    ("bench-gpu", Fields(gpus_per_node=4, ntasks_per_node=8), "--gpus-per-node 4 with --ntasks-per-node 8", "same"),
    ("bench-pyxis", Fields(gpus_per_node=4, ntasks_per_node=1), "--gpus-per-node 4 with --ntasks-per-node 1", "same"),
    ("bench-cpu", Fields(nodes=0), "--nodes 0", "whole number from 1"),
    ("bench-cpu", Fields(nodes="1\nrm"), "--nodes '1\\nrm'", "whole number from 1"),
    ("bench-cpu", Fields(cpus_per_task=True), "--cpus-per-task True", "whole number"),
    ("bench-cpu", Fields(time="1h"), "--time '1h'", "30:00"),
    ("bench-cpu", Fields(time="9" * 5000), "--time '999", "30:00"),
    ("bench-cpu", Fields(time="0:00"), "--time '0:00'", "UNLIMITED"),
    ("bench-cpu", Fields(mem="64 GB"), "--mem '64 GB'", "64G"),
    ("bench-cpu", Fields(account=""), "--account ''", "leave it out"),
    ("bench-cpu", Fields(python=""), "--python without a value", "leave it out"),
    ("bench-cpu", Fields(job_name="a\nb"), "a line break", "cannot hold"),
    ("bench-cpu", Fields(job_name="a" * 1001), "1001 bytes", "at most 1000"),
    ("bench-cpu", Fields(python="a\0b"), "a character of value 0", "remove it"),
    ("bench-cpu", Fields(results="\udcff"), "no valid Unicode text", "another text"),
    ("bench-cpu", Fields(backends=("a(b",)), "the text ends", "a comma may have cut it"),
    *((name, Fields(**fields), "no backend is called 'nowhere'", "gloo, halving_doubling") for name, fields in (
        ("bench-cpu", {"backends": ("gloo", "nowhere")}), ("sweep", {"backends": ("ring(faulty(nowhere, late))",)}),
        ("bench-mpirun", {"arguments": ("-n", "5", "--backend", "failover(gloo, nowhere(gloo))")}))),
    ("bench-cpu", Fields(arguments=("--json", "x")), "--json among", "does not need it"),
    ("bench-cpu", Fields(arguments=("--json=x",)), "--json=x among", "does not need it"),
    ("bench-cpu", Fields(arguments=("--no-such",)), "--no-such", "--help"),
    ("train", Fields(arguments=("--json", "x")), "--json among", "does not need it"),
    ("train", Fields(lead=0), "--lead 0", "whole number"),
    ("train", Fields(spares=-1), "--spares -1", "whole number from 0"),
    ("train", Fields(spares=2), "--spares 2 of --nodes 2", "at least one node"),
    ("bench-cpu", Fields(relaunches=1), "--relaunches, which bench-cpu does not have", "train, train-mpirun"),
    *(("train", Fields(lead=lead, time=time), f"--lead {lead} (seconds) with --time {time}", "more time")
      for lead, time in ((120, "3"), (120, "3:00"), (3600, "1:00:59"), (65535, "0-18:13:15"))),
    ("train", Fields(lead=65536, time="2-0"), "--lead 65536", "from 1 to 65535"),
    *(("bench-cpu", Fields(time=time), f"--time '{time}'", "at most 1000000 minutes") for time in (
        "1000001", "1000000:01", "9" * 20, "16666:40:01", "694-10:40:01")),
    *((name, Fields(**{field: "-foo"}), f"--{field} '-foo', which", "write ./-foo") for name, field in (
        ("bench-cpu", "python"), ("sweep", "results"), ("train-mpirun", "program"), ("bench-apptainer", "image"))),
    ("train", Fields(program=""), "--program without a value", "leave it out"),
    ("sweep", Fields(arguments=("-b", "4")), "-b among", "does not need it"),
    ("sweep", Fields(sizes=("1M",)), "the sizes '1M'", "4:64K"),
    ("sweep", Fields(sizes=("1M:1K",)), "the sizes '1M:1K'", "first and last"),
    ("sweep", Fields(sizes=("4:many",)), "not a whole number of bytes", "64K"),
    ("sweep", Fields(sizes=("4:8",) * 334), "1002 cases", "at most 1000"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fields", "found", "remedy"), REFUSED)
def test_what_does_not_fit_is_refused(name: str, fields: Fields, found: str, remedy: str) -> None:
    with pytest.raises((OptionError, ExpressionError)) as caught:
        render(name, fields)
    error: HpccommError = caught.value
    assert found in str(error)
    assert remedy in error.remedy


def test_rendering_needs_no_torch() -> None:
    backends = (
        "faulty(mpi4py, wrong(at=after), call=3)",
        "checked(hierarchical(shm, ring(gloo), by=switch))",
        "@no-file",
    )
    text = render("sweep", Fields(backends=backends))
    check = f"import sys, hpccomm.jobs as j; print(j.render('sweep', j.Fields(backends={backends!r})), end='')"
    check += "; assert 'torch' not in sys.modules"
    ran = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, text, "")


@pytest.mark.parametrize("name", JOBS)
def test_name_of_a_job_is_no_part_of_a_path(name: str) -> None:
    number = "%A-%a" if name == "sweep" else "%j"
    assert f"--output=hpccomm-{name}-{number}.out" in directives(render(name, Fields(job_name="../a/b")))


@pytest.mark.parametrize(
    "time", ["5", "90:00", "1:30:00", "1-12", "1-12:30", "1-12:30:00", "694-10:40:00", "UNLIMITED"]
)
def test_times_as_slurm_writes_them(time: str) -> None:
    assert f"--time={time}" in directives(render("sweep-collect", Fields(time=time)))


@pytest.mark.parametrize(
    ("lead", "time"), [(119, "3"), (119, "3:00"), (3600, "1:01:01"), (65535, "0-18:13:16"), (65535, "UNLIMITED")]
)
def test_a_lead_that_leaves_time_is_taken(lead: int, time: str) -> None:
    assert f"--signal=USR1@{lead}" in directives(render("train", Fields(lead=lead, time=time)))


def test_command_line_lists_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["JOB", *JOBS]


def test_command_line_renders(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["render", "bench-mpirun", "--nodes", "4", "--modules", "gcc", "openmpi", "--backends", "gloo"]
    words += ["--mpirun-options", "--map-by 'ppr:2:node' --bind-to core", "--", "-e", "1G", "--wide"]
    assert main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "--nodes=4" in directives(out)
    assert edits(out) == {
        "MODULES": "(gcc openmpi)",
        "PYTHON": "python",
        "MPIRUN": "''",
        "MPIRUN_OPTIONS": "(--map-by ppr:2:node --bind-to core)",
        "BACKENDS": "(gloo)",
        "RESULTS": "hpccomm-results",
        "ARGUMENTS": "(-e 1G --wide)",
    }


def test_command_line_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["render", "bench-gpu", "--gpus-per-node", "4", "--ntasks-per-node", "2"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "python -m hpccomm.jobs: render a Slurm job",
        "  found: --gpus-per-node 4 with --ntasks-per-node 2, but each task has one GPU",
        "  do:    give one of the two, or both the same number",
    ]


def test_submitting_without_slurm_is_an_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["render", "bench-cpu", "--submit"]) == 1
    assert "sbatch: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["list", "render sweep"])
@pytest.mark.parametrize(
    ("where", "status", "said"),
    [
        (">&-", 2, "Bad file descriptor"),
        (">/dev/full", 2, "No space left on device"),
        ("| true", 0, ""),
    ],
)
def test_text_that_cannot_be_written(action: str, where: str, status: int, said: str) -> None:
    command = f"set -o pipefail; (sleep 0.1; exec {sys.executable} -m hpccomm.jobs {action}) {where}"
    ran = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == status
    assert ran.stderr == (f"python -m hpccomm.jobs: cannot write to standard output: {said}\n" if said else "")


def test_text_that_an_encoding_lacks() -> None:
    command = [sys.executable, "-m", "hpccomm.jobs", "render", "bench-cpu", "--results", "\u03bb"]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"PYTHONIOENCODING": "latin-1"}
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "python -m hpccomm.jobs: cannot write to standard output: its encoding, latin-1, has no '\\u03bb'\n"
    )


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    assert main(["render", "bench-cpu", "--submit"]) == 130
