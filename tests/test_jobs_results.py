"""What scripts of jobs ask for: srun's plugin, whether results are complete, and a sweep's results in one table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT
from hpccomm.errors import JobError, LaunchError
from hpccomm.jobs.__main__ import main
from hpccomm.jobs.plugin import choose, listed

NEW = """MPI plugin types are...
\tpmix
\tnone
\tcray_shasta
\tpmi2
specific pmix plugin versions available: pmix_v4
"""
OLD = "srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: openmpi\n"


@pytest.mark.parametrize(
    "text",
    [
        "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\nspecific pmix plugin versions available: pmix_v4\n",
        "srun: MPI types are...\nsrun: none\nsrun: pmi2\nsrun: pmix\n",
        "MPI plugin types are...\nnone, pmi2,pmix\n",
    ],
)
def test_plugins_of_slurm(text: str) -> None:
    assert listed(text) == ["none", "pmi2", "pmix"]


def test_plugins_are_read_from_all_versions_of_slurm() -> None:
    assert listed(NEW) == ["pmix", "none", "cray_shasta", "pmi2"]
    assert listed(OLD) == ["none", "pmi2", "openmpi"]
    assert listed("srun: fatal: no controller\n") == []


@pytest.mark.parametrize(
    ("vendor", "library", "expected"),
    [
        ("Open MPI", "Open MPI v5.0.11", "pmix"),
        ("MPICH", "MPICH Version: 5.0.2", "pmi2"),
        ("MPICH", "MPICH Version: 4.2 --with-pmix=/usr", "pmix"),
        ("Intel MPI", "Intel(R) MPI Library 2021.19", "pmi2"),
        ("MVAPICH", "MVAPICH Version: 3.0", "pmi2"),
        ("Cray MPICH", "MPI VERSION: CRAY MPICH version 8.1", "cray_shasta"),
    ],
)
def test_plugin_fits_the_library(vendor: str, library: str, expected: str) -> None:
    assert choose(listed(NEW), vendor=vendor, library=library) == expected


@pytest.mark.parametrize(
    ("offered", "expected"),
    [(["none", "pmix_v4", "pmix_v5"], "pmix_v4"), (["pmix_v4", "pmix"], "pmix"), (["pmix_v3"], "pmix_v3")],
)
def test_version_of_a_plugin_serves_where_there_is_no_other(offered: list[str], expected: str) -> None:
    assert choose(offered, vendor="Open MPI", library="") == expected


@pytest.mark.parametrize(
    ("vendor", "found"), [("Open MPI", "wanted is pmix; srun --mpi=list names none, pmi2"), ("Other", "nobody knows")]
)
def test_plugin_that_is_not_there_is_an_error(vendor: str, found: str) -> None:
    with pytest.raises(LaunchError) as caught:
        choose(listed(OLD), vendor=vendor, library="")
    assert found in caught.value.found
    assert "bench-mpirun" in caught.value.remedy


def result(backend: str, size: int, time_us: float | None) -> dict[str, Any]:
    what = {"collective": "all_reduce", "place": "in", "dtype": "float32", "op": "sum", "ranks": 2}
    return {**what, "backend": backend, "size_bytes": size, "time_us_median": time_us}


def write(path: Path, *results: dict[str, Any], complete: bool = True, ranks: int = 2) -> Path:
    content = {"environment": {"ranks": ranks}, "complete": complete, "results": results}
    path.write_text(json.dumps(content))
    return path


def test_complete_results_are_the_end_marker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "x.json", result("gloo", 4, 1.0))
    assert main(["verify", str(file), "--ranks", "2"]) == 0
    assert capsys.readouterr().out == f"complete: 1 results of 2 ranks in {file}\n"


def test_measurements_without_a_table_are_results_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.json"
    content = {"environment": {"ranks": 2}, "complete": True, "results": [], "pairs": [{"backend": "gloo"}] * 3}
    file.write_text(json.dumps(content))
    assert main(["verify", str(file), "--ranks", "2"]) == 0
    assert capsys.readouterr().out == f"complete: 3 results of 2 ranks in {file}\n"


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (None, "No such file"),
        ("", "Expecting value"),
        ("[]", "list indices"),
        ('{"results": []}', "no 'complete'"),
        ('{"complete": false, "results": [1, 2], "environment": {"ranks": 2}}', "incomplete after 2 results"),
        ('{"complete": true, "results": [], "environment": {"ranks": 2}}', "no result"),
        ('{"complete": true, "results": [1], "environment": {}}', "no 'ranks'"),
        ('{"complete": true, "results": [1], "environment": {"ranks": 1}}', "is of 1 ranks"),
    ],
)
def test_results_that_prove_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, found: str
) -> None:
    file = tmp_path / "x.json"
    if content is not None:
        file.write_text(content)
    assert main(["verify", str(file), "--ranks", "2"]) == 1
    assert found in capsys.readouterr().err


def test_cases_of_a_sweep_are_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "case-0-of-3.json", result("mpi4py", 4, 1.5), result("mpi4py", 1024, 3.0))
    write(tmp_path / "case-1-of-3.json", result("gloo", 4, 100.0))
    write(tmp_path / "case-2-of-3.json", result("gloo", 1024, None))
    assert main(["collect", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "",
        "all_reduce sum of float32, in place, 2 ranks; median time_us, * marks the best of a row",
        "A  mpi4py",
        "B  gloo",
        " size      A      B",
        "  4 B  1.50*  100.0",
        "1 KiB  3.00*      -",
        "",
        f"4 results in {tmp_path}/sweep.json",
    ]
    joined = json.loads((tmp_path / "sweep.json").read_text())
    assert joined["complete"]
    assert len(joined["results"]) == 4


def test_missing_cases_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "case-1-of-3.json", result("gloo", 4, 100.0))
    write(tmp_path / "case-2-of-3.json", result("gloo", 1024, 200.0), complete=False)
    assert main(["collect", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "4 B  100.0*" in out
    assert "found: case 0 is missing; case 2: incomplete after 1 results" in err
    assert f"copy the files case-… from the folder of that job to {tmp_path}, and collect again" in err
    assert not json.loads((tmp_path / "sweep.json").read_text())["complete"]


@pytest.mark.parametrize(
    ("cell", "why"),
    [
        ({"wrong": None, "error": "TimeoutError: late"}, "TimeoutError: late"),
        ({"wrong": 3, "error": "wrong elements over all ranks"}, "wrong elements over all ranks"),
        ({"wrong": 3, "error": None}, "3 wrong elements"),
    ],
)
def test_failed_and_wrong_cells_are_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cell: dict[str, Any], why: str
) -> None:
    good = {"wrong": 0, "error": None}
    write(tmp_path / "case-0-of-2.json", {**result("gloo", 4, 100.0), **good})
    write(tmp_path / "case-1-of-2.json", *({**result("gloo", size, None), **cell} for size in (8, 16)))
    assert main(["collect", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert "4 B  100.0*" in out
    assert f"found: case 1: failed: {why}\n" in err


@pytest.mark.parametrize(
    ("names", "found"),
    [((), "found: none"), (("case-0-of-2.json", "case-0-of-3.json"), "cases of sweeps of"), (None, "No such file")],
)
def test_what_is_no_sweep_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...] | None, found: str
) -> None:
    for name in names or ():
        write(tmp_path / name, result("gloo", 4, 1.0))
    assert main(["collect", str(tmp_path / "no" if names is None else tmp_path)]) == 1
    assert found in capsys.readouterr().err


def test_sweep_that_cannot_be_joined_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "case-0-of-1.json", result("gloo", 4, 1.0))
    (tmp_path / "sweep.json").mkdir()
    assert main(["collect", str(tmp_path)]) == 1
    assert f"{tmp_path}/sweep.json\n  found: Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("action", ["verify case-0-of-1.json --ranks 2", "collect .", "plugin <plugins"])
def test_answer_that_cannot_be_written(tmp_path: Path, action: str) -> None:
    write(tmp_path / "case-0-of-1.json", result("gloo", 4, 1.0))
    (tmp_path / "plugins").write_text("none\npmi2\npmix\n")
    command = f"{sys.executable} -m hpccomm.jobs {action} >/dev/full"
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    ran = subprocess.run(["bash", "-c", command], cwd=tmp_path, capture_output=True, text=True, env=env)
    assert ran.returncode == 2
    assert ran.stderr == "python -m hpccomm.jobs: cannot write to standard output: No space left on device\n"


def test_error_of_a_job_is_of_the_family() -> None:
    assert issubclass(JobError, RuntimeError)
