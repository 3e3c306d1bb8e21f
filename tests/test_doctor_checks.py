"""The doctor's judgements on facts that this machine does not have, and what the report makes of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from rich.console import Console

from hpccomm.doctor.case import Case, Sight, Trial
from hpccomm.doctor.checks import CHECKS
from hpccomm.doctor.checks.interfaces import for_trial, kept_off
from hpccomm.doctor.examine import judge
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.doctor.report import in_short, report, verdict

NOTE, WARNING, ERROR = Severity.NOTE, Severity.WARNING, Severity.ERROR
MIB = 2**20
LIBRARIES = {"torch": "2.14.1", "cuda": "13.0", "nccl": "2.30", "threads": 1, "devices": 0, "level": "multiple"}
GOOD: dict[str, dict[str, Any]] = {
    "libraries": {**LIBRARIES, "mpi": "Open MPI 5.0.11", "mpi_file": "/opt/lib/libmpi.so.40"},
    "gpus": {"driver": "", "devices": [], "gpus": [], "asked": {}},
    "slurm": {"version": "", "mpi": [], "job": {}},
    "names": {"name": "a", "addresses": ["10.0.0.1"], "error": ""},
    "cores": {"cores": [0, 1, 2, 3], "of": 4, "quota": None, "threads": "1"},
    "limits": {
        "soft": {"memlock": None, "nofile": 1024, "nproc": None},
        "hard": {"memlock": None, "nofile": 4096, "nproc": None},
        "infiniband": False,
    },
    "memory": {"size": 2**33, "free": 2**33, "left": 0, "left_bytes": 0, "example": "", "container": ""},
    "sessions": {"folder": "/tmp", "left": 0, "example": ""},
    "process": {"has_home": True, "has_folder": True},
    "attach": {"answer": "yes", "ptrace_scope": "0", "container": ""},
    "software": {
        "versions": {"python": "3.11.7", "torch": "2.14.1", "hpccomm": "0.1.0"},
        "files": {},
        "launchers": {"mpirun": {"path": "/opt/bin/mpirun", "vendor": "Open MPI", "version": "5.0.11"}},
        "started_by": "",
    },
}


def interface(number: int) -> dict[str, Any]:
    address = f"10.0.0.{number + 1}"
    shown = {"name": "eth0", "address": address, "prefix": 24, "is_up": True, "is_loopback": False, "speed": 1000}
    return {"interfaces": [shown], "bridges": [], "settings": {}}


def sight(rank: int, host: str = "a", **changed: dict[str, Any]) -> Sight:
    """Make what a rank of a good host sees, but for what is changed of some checks' facts."""
    facts = {**GOOD, "interfaces": interface(ord(host) - ord("a"))}
    return Sight(rank, host, "", 0, {name: {**seen, **changed.get(name, {})} for name, seen in facts.items()})


def findings(*sights: Sight, **trial: Any) -> list[Finding]:
    return judge(Case(sights, Trial(**{"size": len(sights), "joined": True, **trial})))


def on_two_hosts(**changed: dict[str, Any]) -> list[Finding]:
    return findings(sight(0), sight(1, "b", **changed))


def test_good_hosts_have_no_finding() -> None:
    assert findings(sight(0)) == []
    assert on_two_hosts() == []


@pytest.mark.parametrize(
    ("check", "facts", "severity", "what", "advice"),
    [
        ("cores", {"quota": 0.5}, WARNING, "1 rank of a may use the time of 0.5 cores", "more CPUs"),
        ("cores", {"threads": "16"}, WARNING, "a rank of a runs 16 threads on 4 cores", "OMP_NUM_THREADS=4"),
        ("limits", {"soft": {"nofile": 64, "nproc": None, "memlock": None}}, WARNING, "at most 64 open files on a",
         "ulimit -n 1024"),
        ("limits", {"soft": {"nofile": None, "nproc": 100, "memlock": None}}, WARNING, "at most 100 processes on a",
         "ulimit -u 2048"),
        ("limits", {"soft": {"nofile": None, "nproc": None, "memlock": 65536}, "infiniband": True}, WARNING,
         "locked memory is limited on a", "ulimit -l unlimited"),
        ("memory", {"size": 64 * MIB, "free": 64 * MIB, "container": "Docker"}, WARNING, "64 MiB free of 64 MiB",
         "--shm-size"),
        ("memory", {"free": 8 * MIB, "left_bytes": 2**32}, ERROR, "8 MiB free of 8 GiB", "remount"),
        ("memory", {"left": 3, "left_bytes": 4096}, NOTE, "3 files of former jobs", "remove them"),
        ("sessions", {"left": 2, "example": "ompi.7"}, NOTE, "2 folders of killed mpiruns in /tmp", "rm -r"),
        ("attach", {"answer": "no", "ptrace_scope": "1"}, NOTE, "may not read each other's memory", "ptrace_scope=0"),
        ("libraries", {"level": "serialized"}, NOTE, "thread level serialized", "MPI_THREAD_MULTIPLE"),
        ("libraries", {"mpi": "MPICH 5.0.2"}, WARNING, "the mpirun in PATH belongs to Open MPI", "first in PATH"),
        ("gpus", {"asked": {"SLURM_GPUS": "4"}}, ERROR, "CUDA is expected but absent", "--gpus-per-node"),
        ("gpus", {"devices": ["/dev/nvidia0"], "driver": "580.1"}, WARNING, "torch sees no GPU on a", "nvidia-smi"),
        ("process", {"has_home": False}, WARNING, "HOME is not set on a", "export HOME=/tmp"),
        ("process", {"has_folder": False}, ERROR, "the working directory does not exist on a", "cd ~"),
        ("slurm", {"job": {"SLURM_NTASKS": "8"}}, WARNING, "one process, in a Slurm job of 8 tasks", "srun"),
        ("slurm", {"mpi": ["none", "pmi2"]}, NOTE, "srun cannot join ranks of Open MPI", "Open MPI's mpirun"),
    ],
)  # fmt: skip
def test_one_host(check: str, facts: dict[str, Any], severity: Severity, what: str, advice: str) -> None:
    facts = {**GOOD[check], **facts}
    if check == "libraries":
        facts["threads"] = 0
    if check == "cores" and "16" in facts["threads"]:
        changed = {"libraries": {"threads": 16}, "cores": facts}
    else:
        changed = {check: facts}
    (found,) = findings(sight(0, **changed))
    assert found.severity is severity
    assert what in found.what
    assert advice in f"{found.remedy} {found.setting}"


@pytest.mark.parametrize(
    ("check", "facts", "severity", "what"),
    [
        ("names", {"addresses": ["127.0.1.1", "::1"]}, WARNING, "the own name resolves to loopback on b"),
        ("names", {"addresses": [], "error": "unknown"}, WARNING, "the own name does not resolve on b"),
        ("libraries", {"torch": "2.13.0"}, ERROR, "hosts have different versions of torch"),
        ("libraries", {"mpi": "Open MPI 4.1.8"}, ERROR, "hosts have different versions of MPI library"),
        ("software", {"versions": {"python": "3.12.0", "hpccomm": "0.1.0"}}, WARNING, "different versions of python"),
        ("interfaces", {"settings": {"OMPI_MCA_btl_tcp_if_include": "ib7"}}, ERROR, "names no interface of b"),
        ("interfaces", interface(0), ERROR, "10.0.0.1 is an address of 2 hosts: a (eth0), b (eth0)"),
    ],
)
def test_differences_between_hosts(check: str, facts: dict[str, Any], severity: Severity, what: str) -> None:
    (found,) = on_two_hosts(**{check: facts})
    assert found.severity is severity
    assert what in found.what


def test_ranks_threads_and_cores() -> None:
    def judged(ranks: int, cores: Sequence[int], threads: int = 1) -> list[tuple[Severity, str]]:
        bound = {"cores": {"cores": list(cores)}, "libraries": {"threads": threads}}
        return [(one.severity, one.what) for one in findings(*(sight(rank, **bound) for rank in range(ranks)))]

    assert judged(4, range(4)) == []
    assert judged(8, range(4)) == [(NOTE, "8 ranks share 4 cores of a")]
    assert judged(4, [2]) == [(WARNING, "4 ranks share 1 core of a")]
    assert judged(4, range(4), threads=4) == [(WARNING, "4 ranks of a run 16 threads on 4 cores")]
    unheard = Sight(**{**vars(sight(0)), "local_size": 6})
    assert [one.what for one in findings(unheard, size=6, joined=False)] == ["6 ranks share 4 cores of a"]


def test_open_mpi_is_kept_off_bridges_that_nobody_set() -> None:
    exclude, include = "OMPI_MCA_btl_tcp_if_exclude", "OMPI_MCA_btl_tcp_if_include"
    assert kept_off({}, []) == {}
    assert kept_off({}, ["docker0"]) == {exclude: "127.0.0.0/8,docker0"}
    assert kept_off({exclude: "lo,ib0"}, ["docker0"]) == {exclude: "lo,ib0,docker0"}
    assert kept_off({exclude: "lo,docker0"}, ["docker0"]) == {}
    assert kept_off({include: "eth0"}, ["docker0"]) == {}


@pytest.mark.parametrize(("include", "is_left_out"), [("no7,10.9.0.0/16", True), ("no7,127.0.0.0/8", False)])
def test_open_mpi_is_not_told_of_networks_that_the_host_does_not_have(include: str, is_left_out: bool) -> None:
    asked = {"OMPI_MCA_btl_tcp_if_include": include}
    assert (asked.items() <= for_trial(asked)[0].items()) != is_left_out


def test_bridge_is_suspected_where_open_mpi_joins_nobody() -> None:
    bridge = {**interface(0)["interfaces"][0], "name": "docker0", "address": "172.17.0.1", "prefix": 16}

    def suspected(settings: dict[str, str], **trial: Any) -> list[str]:
        seen = {"interfaces": [*interface(0)["interfaces"], bridge], "bridges": ["docker0"], "settings": settings}
        return [one.what for one in findings(sight(0, interfaces=seen), **{"size": 2, "joined": False, **trial})]

    what = ["docker0 172.17.0.1 of a may be why Open MPI does not join the hosts"]
    assert suspected({"OMPI_MCA_btl_tcp_if_include": "172.17.0.0/16"}) == what
    assert suspected({"OMPI_MCA_btl_tcp_if_include": "docker0,eth0"}) == what
    assert suspected({"OMPI_MCA_btl_tcp_if_include": "10.0.0.0/24"}) == []
    assert suspected({"OMPI_MCA_btl_tcp_if_exclude": "lo,docker0"}) == []
    assert suspected({}) == what
    assert suspected({}, kept_off=["docker0"]) == []
    assert suspected({}, joined=True, size=1) == []


def test_ports_are_told_unless_a_world_has_them() -> None:
    taken = {"HPCCOMM_STORE_PORT": {"port": 7, "holders": ["0.0.0.0:7"]}, "MASTER_PORT": {"port": 8, "holders": []}}
    seen = Sight(**{**vars(sight(0)), "facts": {**sight(0).facts, "ports": taken}})
    refused = {"stage": "world", "what": "listen on 10.0.0.1, port 7", "found": "Address in use", "remedy": ""}
    assert [one.check for one in findings(seen, errors=[refused])] == ["ports"]
    assert findings(seen, topology="1 rank") == []
    assert [one.check for one in findings(sight(0), errors=[refused])] == ["world"]


def lines(case: Case, found: Sequence[Finding]) -> list[str]:
    console = Console(width=80, force_terminal=False)
    with console.capture() as written:
        console.print(report(case, found))
    return [line.rstrip() for line in written.get().splitlines()]


def test_report_marks_what_differs_and_is_bounded() -> None:
    hosts = "abcdefgh"
    sights = [sight(rank, host, memory={"size": 2**33 + rank * 2**30}) for rank, host in enumerate(hosts)]
    case = Case(sights, Trial(size=8, joined=True, times={"gloo": 12.0}))
    shown = lines(case, judge(case))
    assert len(shown) < 50
    assert "/dev/shm !       8 GiB (a)" in shown
    assert "                 and 4 more" in shown
    assert "! differs between hosts" in shown
    assert "all_reduce 4 KiB 12.0 us over gloo" in shown
    assert shown[-1] == "all well"


def test_one_is_no_plural() -> None:
    case = Case([sight(0, memory={"free": 64 * MIB})], Trial(joined=True))
    shown = "\n".join(lines(case, judge(case)))
    assert "takes 16 MiB for 1 rank, NCCL" in shown
    assert "; 1 thread\n" in shown


def test_facts_of_another_version_do_no_harm() -> None:
    strange = Sight(0, "a", "", 0, {check.name: {"new": 1} for check in CHECKS})
    case = Case([strange], Trial())
    found = judge(case)
    assert all(one.severity is WARNING for one in found)
    assert any("cannot be shown" in line for line in lines(case, found))


def test_what_only_an_unheard_rank_knows_is_said_in_short() -> None:
    common = {"stage": "join", "what": "start MPI", "found": "none", "remedy": "install", "everywhere": "yes"}
    own = {"stage": "import", "what": "the step import crashed", "found": "by SIGABRT", "remedy": "look"}
    seen = sight(2, "b", limits={"soft": {"nofile": 64, "nproc": None, "memlock": None}})

    def said(*errors: dict[str, str], leads_host: bool) -> list[str]:
        case = Case([seen], Trial(size=4, errors=errors))
        return [line.partition(":")[2].partition(":")[0] for line in in_short(case, judge(case), leads_host=leads_host)]

    assert said(common, leads_host=False) == []
    assert said(own, leads_host=False) == [" the step import crashed"]
    assert said(common, leads_host=True) == [" at most 64 open files on b"]
    assert said(own, leads_host=True) == [" the step import crashed", " at most 64 open files on b"]


def test_verdicts() -> None:
    note, warning, error = (Finding(severity, "x", "y") for severity in (NOTE, WARNING, ERROR))
    assert verdict([]) == "all well"
    assert verdict([note, note]) == "all well (2 notes)"
    assert verdict([error, error, warning, note]) == "not well: 2 errors and 1 warning"
