"""The doctor on one host: it says that all is well, or names what is broken, and it ends whatever hangs or crashes."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import Job, Mpi, Result, known_mpis, run_job
from hpccomm.doctor.__main__ import main
from hpccomm.doctor.once import say_once
from launch_starts import step
from outcomes import assert_success

DOCTOR = ["-m", "hpccomm.doctor"]
JOB_S = 200.0
WITHOUT_ATTACH = str(Path(__file__).with_name("programs") / "without_attach.py")


def alone(mpi: Mpi, *options: str, env: Mapping[str, str] | None = None) -> Result:
    """Run the doctor without a launcher."""
    environment = mpi.environment() | dict(env or {})
    return Job([mpi.python, *DOCTOR, *options], env=environment).wait(JOB_S)


def findings(result: Result, status: int) -> dict[str, dict[str, Any]]:
    """Give what the doctor found, as JSON, by check; each check has one finding at most."""
    assert result.returncode == status, result
    assert not result.timed_out, result
    assert not result.leftovers, result
    told = json.loads(result.stdout)
    assert told["status"] == status, result
    found = {one["check"]: one for one in told["findings"] if one["severity"] != "note"}
    assert len(found) == sum(one["severity"] != "note" for one in told["findings"]), result
    return found


def assert_readable(result: Result, most_lines: int) -> None:
    """See that a report fits the screen."""
    lines = result.stdout.splitlines()
    assert len(lines) <= most_lines, result
    assert max(map(len, lines)) <= 80, result


def script(folder: Path, name: str, text: str) -> Path:
    """Write a program, and give its folder."""
    file = folder / name
    file.write_text(text)
    file.chmod(0o755)
    return folder


def test_all_is_well_alone(one_mpi: Mpi) -> None:
    result = alone(one_mpi, "--json")
    assert findings(result, 0) == {}
    told = json.loads(result.stdout)
    assert told["verdict"] == "all well"
    assert set(told["trial"]["times"]) == {"mpi4py", "gloo"}
    assert told["ranks"][0]["facts"]["attach"]["answer"] == "yes"


def test_all_is_well_on_four_ranks(mpi: Mpi) -> None:
    result = run_job(mpi, 4, [mpi.python, *DOCTOR], timeout_s=JOB_S)
    assert_success(result)
    assert_readable(result, 50)
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"4 ranks on 1 node: {socket.gethostname()} 0-3, started by")
    assert lines[-1].startswith("all well"), result
    assert "over hierarchical(mpi4py, gloo, by=2)" in result.stdout
    assert ("Open MPI" in result.stdout) == mpi.is_open_mpi, result


def test_mixed_mpis_are_told_once(mpi: Mpi) -> None:
    others = [other for other in known_mpis() if other.is_open_mpi != mpi.is_open_mpi and not other.missing]
    if not others:
        pytest.skip("needs Open MPI and one of MPICH's relatives")
    result = run_job(mpi, 2, [others[0].python, *DOCTOR], timeout_s=JOB_S)
    assert result.returncode == 2, result
    assert not result.leftovers, result
    assert result.stdout.count("ERROR") == 1, result
    assert result.stdout.count("not well: 1 error\n") == 1, result
    assert "installed together with" in result.stdout, result
    assert result.stdout.count("/dev/shm  ") == 1, "what can be seen is shown all the same"


def test_several_faults_are_told_at_once(one_mpi: Mpi) -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    command = [sys.executable, WITHOUT_ATTACH, one_mpi.python, *DOCTOR, "--json"]
    bound = ["taskset", "-c", str(min(os.sched_getaffinity(0))), *one_mpi.command(4, command)]
    env = {"CUDA_VISIBLE_DEVICES": "0", "HPCCOMM_INTERFACE": "no7"}
    found = findings(Job(bound, env=one_mpi.environment() | env).wait(JOB_S), 2)
    assert "HPCCOMM_INTERFACE=no7" in found["world"]["what"]
    assert "not asked for" in found["world"]["found"]
    assert "CUDA is expected but absent" in found["gpus"]["what"]
    assert found["gpus"]["found"].startswith("CUDA_VISIBLE_DEVICES=0; torch ")
    assert "may not read each other's memory" in found["attach"]["what"]
    assert "Operation not permitted" in found["attach"]["found"]
    if (os.cpu_count() or 1) > 1:
        assert found["cores"]["what"] == f"4 ranks share 1 core of {socket.gethostname()}"


def test_port_that_is_taken_and_tool_that_hangs(one_mpi: Mpi, tmp_path: Path) -> None:
    tools = script(tmp_path, "mpirun", "#!/bin/sh\nexec sleep 1000\n")
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = str(server.getsockname()[1])
        path = f"{tools}{os.pathsep}{one_mpi.environment()['PATH']}"
        env = {"HPCCOMM_STORE_PORT": port, "PATH": path}
        found = findings(alone(one_mpi, "--json", env=env), 2)
    assert port in found["ports"]["what"]
    assert f"process {os.getpid()} " in found["ports"]["found"]
    assert found["ports"]["setting"] == "unset HPCCOMM_STORE_PORT"
    assert "mpirun --version did not end within 5 s" in found["software"]["found"]
    assert set(found) == {"ports", "software"}


def test_ranks_that_crash_hold_nobody_and_are_told_once(mpi: Mpi, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("import os, sys\nprint('overheated', file=sys.stderr)\nos.abort()\n")
    path = f"{tmp_path}{os.pathsep}{mpi.environment()['PYTHONPATH']}"
    broken = ["env", f"PYTHONPATH={path}", "PYTHONFAULTHANDLER="]
    doctor = [mpi.python, *DOCTOR, "--timeout", "1", "--json"]
    job = replace(mpi, options=("-np", "1", *doctor, ":"))
    result = Job(job.command(2, [*broken, *doctor]), env=mpi.environment()).wait(JOB_S)
    assert not result.timed_out, result
    assert not result.leftovers, result
    assert result.returncode != 0, result
    assert result.stderr.count("the step import crashed: it ended by SIGABRT") == 1, result
    assert result.stderr.count("overheated") == 1, result
    told = json.JSONDecoder().raw_decode(result.stdout)[0]  # Hydra may add lines of its own
    assert (told["verdict"], told["status"]) == ("error", 2), result
    assert (told["trial"]["joined"], told["trial"]["size"]) == (False, 3), result
    assert [one["what"] for one in told["findings"] if one["check"] == "join"], result


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *((["--timeout", text], f"'{text}' instead of seconds above 0") for text in ("0", "x", "nan", "1e6")),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_arguments_that_do_not_fit(capsys: pytest.CaptureFixture[str], options: Sequence[str], why: str) -> None:
    with pytest.raises(SystemExit) as caught:
        main(options)
    assert caught.value.code == 2
    errors = capsys.readouterr().err
    assert "usage: python -m hpccomm.doctor" in errors
    assert why in errors


def test_ctrl_c_before_there_is_a_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hpccomm.doctor.examine.look", interrupted)
    assert main([]) == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("where", "status", "said"),
    [
        (">&-", 2, "Bad file descriptor"),
        (">/dev/full", 2, "No space left on device"),
        ("| true", 0, ""),
    ],
)
def test_report_that_cannot_be_written_holds_nobody(one_mpi: Mpi, where: str, status: int, said: str) -> None:
    command = f"set -o pipefail; {one_mpi.python} -m hpccomm.doctor --json {where}"
    result = Job(["bash", "-c", command], env=one_mpi.environment()).wait(JOB_S)
    assert result.returncode == status, result
    line = f"python -m hpccomm.doctor: cannot write the report to standard output: {said}\n"
    assert result.stderr == (line if said else ""), result
    assert not result.leftovers, result


def test_of_several_ranks_the_first_reads_flight_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = ["--flight", str(tmp_path / "no")]
    for rank, status in ((0, 2), (1, 0)):
        for name, value in step(rank, 2, rank, "2").items():
            monkeypatch.setenv(name, value)
        assert main(missing) == status
        out, err = capsys.readouterr()
        assert out == ""
        assert bool(err) == (rank == 0)


def test_what_ranks_have_alike_is_said_once_and_by_whom(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    line = f"ERROR on a: {tmp_path}"  # never said before
    for rank in (3, 4):
        say_once([line], rank=rank)
    say_once([f"{line} too"], rank=None)
    assert capsys.readouterr().err == f"hpccomm.doctor: rank 3: {line}\nhpccomm.doctor: {line} too\n"
