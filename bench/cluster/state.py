"""State folders of clusters, their processes, and what a crashed owner left behind.

Every process of a cluster carries its name in a variable of its environment, so it is found again in /proc, whatever
became of its parents. It knows no settings and starts no host.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.cluster.host import UNSHARE

BASE = Path("/run/hpccomm-cluster")
MARKER = "BENCH_CLUSTER"  # the variable with the name of the cluster
_OWNER = "owner.json"
_END_S = 10.0
_REAP_S = 2.0
_POLL_S = 0.005
_TOOLS = {"ip": "iproute2", "tc": "iproute2", "ethtool": "ethtool", "unshare": "util-linux", "nsenter": "util-linux"}
_PROBE = "mount -t sysfs sysfs /sys && ip link add veth0 type veth peer name veth1 && ip link add bridge0 type bridge"


def unavailable() -> str | None:
    """Say in one line why this machine cannot have a cluster, or None."""
    if sys.platform != "linux":
        return f"clusters are made of Linux namespaces, and this is {sys.platform}"
    if os.geteuid():
        return "clusters are made of namespaces, which needs root"
    missing = {package for tool, package in _TOOLS.items() if shutil.which(tool) is None}
    if missing:
        return f"clusters need the package {' and '.join(sorted(missing))}"
    tried = subprocess.run([*UNSHARE, "sh", "-c", _PROBE], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if tried.returncode:
        return f"clusters need namespaces, which are not allowed here: {' '.join(tried.stderr.split())}"
    return None


def claim(name: str) -> Path:
    """Make the state folder of a new cluster, owned by this process, after removing what crashed owners left.

    Raises:
        FileExistsError: A cluster of this name is up.
    """
    folder = BASE / name
    BASE.mkdir(exist_ok=True)
    with _alone():
        _clear()
        if folder.exists():
            raise FileExistsError(f"cluster {name} is up already; take it down first")
        folder.mkdir()
        own(folder, os.getpid())
    return folder


def clear() -> None:
    """Remove what crashed owners left."""
    if BASE.exists():
        with _alone():
            _clear()


def _clear() -> None:
    for leftover in abandoned():
        remove(leftover)


def own(folder: Path, pid: int | None) -> None:
    """Write down whose cluster it is; None: it stays until it is taken down."""
    (folder / _OWNER).write_text(json.dumps([pid, pid and _started(pid)]))


def known() -> list[Path]:
    """Give the state folders that there are."""
    return sorted(folder for folder in BASE.glob("*") if folder.is_dir())


def abandoned() -> list[Path]:
    """Give the state folders whose owner is gone."""
    return [folder for folder in known() if not _is_owned(folder)]


def remove(folder: Path) -> None:
    """Kill a cluster's processes, wait for their end, and delete its state folder.

    The hosts' parents outside end with the hosts; killed too early they would leave them as zombies.

    Raises:
        RuntimeError: A process does not end.
    """
    start = time.monotonic()
    while pids := processes(folder.name):
        waited = time.monotonic() - start
        if waited > _END_S:
            raise RuntimeError(f"these processes of cluster {folder.name} cannot be killed: {pids}")
        for pid in pids if waited > _REAP_S else filter(_is_on_a_host, pids):
            _kill(pid, folder.name)
        time.sleep(_POLL_S)
    shutil.rmtree(folder, ignore_errors=True)


def processes(name: str) -> list[int]:
    """Give the processes of a cluster, those of all hosts and those that entered them."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _is_marked(entry, name)]


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes from claiming and removing meanwhile."""
    with Path(BASE, ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _is_owned(folder: Path) -> bool:
    try:
        pid, started = json.loads((folder / _OWNER).read_text())
    except (OSError, ValueError):
        return False
    return pid is None or started == _started(pid)


def _started(pid: int) -> int | None:
    """Give when a process started, in the kernel's ticks since boot, which tells it from a later one of its number."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return None


def _is_marked(process: Path, name: str) -> bool:
    with suppress(OSError):
        return f"{MARKER}={name}".encode() in (process / "environ").read_bytes().split(b"\0")
    return False


def _is_on_a_host(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/ns/pid").readlink() != Path("/proc/self/ns/pid").readlink()
    return False


def _kill(pid: int, name: str) -> None:
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            if _is_marked(Path(f"/proc/{pid}"), name):
                signal.pidfd_send_signal(handle, signal.SIGKILL)
        finally:
            os.close(handle)
