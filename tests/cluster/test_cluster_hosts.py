"""The hosts: each one a machine of its own, all of them gone without a trace when their time is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import pytest

from bench.cluster import state
from bench.cluster.cluster import Cluster
from bench.cluster.host import HEAD
from harness import ROOT, Job

NAMESPACES = ("net", "uts", "ipc", "mnt", "pid")
LOOK = """if True:
    import json, os, socket
    from pathlib import Path
    for folder in ("/dev/shm", os.environ["TMPDIR"]):
        Path(folder, socket.gethostname()).touch()
    print(json.dumps({
        "name": socket.gethostname(),
        "address": socket.gethostbyname(socket.gethostname()),
        "memory": os.listdir("/dev/shm"),
        "temporary": os.listdir(os.environ["TMPDIR"]),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "processes": sum(name.isdigit() for name in os.listdir("/proc")),
        "routes": [line.split()[1] for line in Path("/proc/net/route").read_text().splitlines()[1:]],
        "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in %r},
    }))
""" % (NAMESPACES,)  # noqa: UP031 - braces abound
OWNER = """if True:
    import time
    from bench.cluster.cluster import Cluster
    cluster = Cluster(hosts=2)
    cluster.up()
    print(cluster.name, flush=True)
    time.sleep(1000)
"""
PORT = "import socket; socket.create_connection(('node2', 7000), timeout=1); print('reached')"
LISTEN = """if True:
    import socket
    server = socket.create_server(("", 7000))
    print("listens", flush=True)
    while True:
        server.accept()
"""


def namespaces_of(process: int | str) -> dict[str, str]:
    return {kind: str(Path(f"/proc/{process}/ns/{kind}").readlink()) for kind in NAMESPACES}


def namespaces() -> set[str]:
    """Give all namespaces that a process of this machine is in."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/ns/*"):
        try:
            found.add(str(link.readlink()))
        except OSError:
            continue
    return found


def links() -> str:
    """Give the machine's own network interfaces."""
    return subprocess.run(["ip", "-brief", "address"], check=True, capture_output=True, text=True).stdout


def traces(cluster: Cluster, seen: set[str]) -> list[str]:
    """Tell what is left of a cluster whose namespaces were seen."""
    left = [f"process {pid}" for pid in state.processes(cluster.name)]
    left += sorted(seen & namespaces())
    left += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if cluster.name in line]
    return left + [str(cluster.folder)] * cluster.folder.exists()


def gone(name: str) -> bool:
    """Wait until no process of a cluster is left, as the kernel ends them by itself."""
    end = time.monotonic() + 30
    while state.processes(name) and time.monotonic() < end:
        time.sleep(0.05)
    return not state.processes(name)


def test_each_host_is_a_machine_of_its_own(cluster: Cluster) -> None:
    seen = {name: json.loads(cluster.run([sys.executable, "-c", LOOK], name).stdout) for name in cluster.names}
    own = namespaces_of("self")
    for kind in NAMESPACES:
        assert len({*own.values(), *(found["namespaces"][kind] for found in seen.values())}) == 9, kind
    for number, (name, found) in enumerate(seen.items(), 1):
        assert found["name"] == name
        assert found["address"] == f"10.77.0.{number}"
        assert found["memory"] == [name]
        assert found["temporary"] == [name]
        assert found["interfaces"] == ["eth0", "lo"]
        assert found["processes"] <= 4
        assert found["routes"] == ["00004D0A"], "no route leads out of the cluster"


def test_commands_keep_words_folder_and_status(cluster: Cluster, tmp_path: Path) -> None:
    words = ["a b", "c'd", '"e"', "$HOME", "*", "", "-x"]
    for host in (HEAD, "node2"):
        ran = cluster.run(["printf", "<%s>", *words], host)
        assert ran.stdout == "".join(f"<{word}>" for word in words)
        assert cluster.run(["sh", "-c", "exit 7"], host, check=False).returncode == 7
        where = subprocess.run(cluster.enter(["pwd"], host, cwd=tmp_path), check=True, capture_output=True, text=True)
        assert where.stdout == f"{tmp_path}\n"


@pytest.mark.parametrize("host", [HEAD, "node3"])
def test_command_ends_with_its_launcher(cluster: Cluster, host: str) -> None:
    with Job(cluster.enter(["sleep", "1000"], host), env=os.environ) as job:
        while not any("sleep" in Path(f"/proc/{pid}/comm").read_text() for pid in job.pids()):
            time.sleep(0.02)
        result = job.wait(0.1)
    assert result.timed_out
    assert not result.leftovers, result


def test_nothing_is_left_behind() -> None:
    before, hosts_file = links(), Path("/etc/hosts").read_bytes()
    with (
        Cluster(hosts=4, bridges={"node1": "172.17.0.1/16"}) as cluster,
        Job(cluster.enter(["sleep", "1000"], "node4"), env=os.environ) as job,
    ):
        pids = state.processes(cluster.name)
        seen = {*chain(*(namespaces_of(pid).values() for pid in pids))} - {*namespaces_of("self").values()}
        assert len(seen) == 5 * len(NAMESPACES)
        assert links() == before
        cluster.down()
        assert not job.wait(10).timed_out
        assert traces(cluster, seen) == []
    assert links() == before
    assert Path("/etc/hosts").read_bytes() == hosts_file


def test_clusters_do_not_meet() -> None:
    with Cluster(hosts=1) as one, Cluster(hosts=1) as other:
        with pytest.raises(FileExistsError, match=one.name):
            Cluster(name=one.name).up()
        for cluster in (one, other):
            cluster.run(["touch", f"/dev/shm/{cluster.name}"], "node1")
            assert cluster.run(["ls", "/dev/shm"], "node1").stdout == f"{cluster.name}\n"
        one.down()
        assert other.run(["hostname"], "node1").stdout == "node1\n"


def test_host_that_does_not_start_is_an_error_that_leaves_nothing() -> None:
    cluster = Cluster(hosts=2, rate="fast")
    with pytest.raises(RuntimeError, match="fast"):
        cluster.up()
    assert traces(cluster, set()) == []


def test_cluster_of_a_crashed_owner_ends_and_is_cleared_up() -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert owner.stdout is not None
    with owner.stdout as stream:
        name = stream.readline().strip()
    assert len(state.processes(name)) >= 3
    owner.send_signal(signal.SIGKILL)
    assert owner.wait() == -signal.SIGKILL
    assert gone(name), "the kernel ends the hosts of a dead owner"
    left = state.BASE / name
    assert left in state.abandoned()
    with Cluster(hosts=1):
        assert not left.exists(), "the next cluster clears up"


def test_hosts_and_links_fail_and_come_back(cluster: Cluster) -> None:
    def reach() -> bool:
        return cluster.run([sys.executable, "-c", PORT], check=False, timeout_s=20).returncode == 0

    def serve() -> Job:
        job = Job(cluster.enter([sys.executable, "-c", LISTEN], "node2"), env=os.environ)
        while "listens" not in job.stdout and job.process.poll() is None:
            time.sleep(0.02)
        return job

    with serve() as job:
        assert reach()
        cluster.cut("node2")
        assert not reach()
        assert job.process.poll() is None
        cluster.heal("node2")
        assert reach()
        cluster.kill("node2")
        assert job.wait(10).returncode != 0
    ran = cluster.run(["hostname"], "node2", check=False)
    assert (ran.returncode, ran.stderr) == (255, "agent: host node2 is not up\n")
    cluster.start("node2")
    with serve():
        assert reach()


def test_links_are_shaped_both_ways() -> None:
    with Cluster(hosts=1, rate="200mbit", subnets=("10.77.0.0/24", "fd77::/64")) as cluster:
        for host, interfaces in (("node1", ("eth0", "eth1")), (HEAD, ("node1-0", "node1-1"))):
            for interface in interfaces:
                shown = cluster.run(["tc", "qdisc", "show", "dev", interface], host).stdout
                assert "tbf" in shown, shown
                assert "rate 200Mbit" in shown, shown


def test_command_line(tmp_path: Path) -> None:
    def say(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bench.cluster", *words, "--name", name]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)

    name = f"t-{os.getpid()}"
    try:
        up = say("up", "2")
        assert (up.returncode, up.stdout) == (0, f"cluster {name} is up: head and node1, node2\n"), up
        again = say("up", "2")
        assert (again.returncode, again.stderr) == (1, f"cluster {name} is up already; take it down first\n"), again
    finally:
        down = say("down")
    assert down.returncode == 0, down
    assert traces(Cluster(name=name), set()) == []
