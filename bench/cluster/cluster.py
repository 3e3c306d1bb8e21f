"""A cluster of hosts on one machine: bring it up, run commands on its hosts, break it, take it down.

Every host has its own network, hostname, process table, /dev/shm, /sys/class/net, /etc/hosts and $TMPDIR; the other
files are shared, as a home on NFS is. There is no default route, and nothing of the machine itself is changed.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from bench.cluster import state
from bench.cluster.host import HEAD, UNSHARE, limits, port
from bench.cluster.placement import Mpi, Placement, launcher
from bench.cluster.settings import Settings

_HERE = Path(__file__).resolve().parent
_HOST = (sys.executable, "-IS", str(_HERE / "host.py"))
_ENTER = ("--net", "--uts", "--ipc", "--mount", "--pid", "--", "setpriv", "--pdeathsig", "TERM", "env")
_SHARED_CORES = {"OMPI_MCA_mpi_yield_when_idle": "1"}  # no host knows that others compute on the same cores
_TIED = ("setpriv", "--pdeathsig", "KILL")


@dataclass(kw_only=True)
class Cluster(Settings):
    """The hosts, from `up` to `down`; a context manager that does both.

    It lives no longer than the thread that brings it up, unless it `stays`. `state.unavailable` tells whether the
    machine can have one.
    """

    _head: subprocess.Popen[str] | None = field(init=False, default=None, repr=False)

    @classmethod
    def find(cls, name: str) -> Cluster:
        """Give a cluster that is up.

        Raises:
            LookupError: There is none of this name.
        """
        try:
            stored: dict[str, Any] = json.loads((state.BASE / name / "settings.json").read_text())
        except FileNotFoundError:
            raise LookupError(f"no cluster {name!r} is up") from None
        for key in ("subnets", "interfaces"):
            stored[key] = tuple(stored[key])
        return cls(**stored)

    @property
    def folder(self) -> Path:
        """The state folder, which all hosts see."""
        return state.BASE / self.name

    @property
    def local(self) -> Path:
        """Each host's own file system for temporary files: its $TMPDIR."""
        return self.folder / "local"

    def __enter__(self) -> Cluster:
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    def up(self, *, stays: bool = False) -> None:
        """Start all hosts, and remove what crashed owners of other clusters left.

        Args:
            stays: Whether the cluster outlives this process.

        Raises:
            FileExistsError: A cluster of this name is up.
            RuntimeError: A host does not start; with its log.
        """
        state.claim(self.name)
        try:
            self._write()
            self._start_head(() if stays else _TIED)
            if stays:
                state.own(self.folder, None)
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """End every process on every host and delete the state folder."""
        state.remove(self.folder)
        if self._head is not None:
            self._head.wait()
            self._head = None

    def _write(self) -> None:
        for name in ("etc", "pids", "local"):
            (self.folder / name).mkdir()
        for host in (self.head, *self.nodes):
            (self.folder / "etc" / host.name).write_text(self.hosts_file(host.name))
        (self.folder / "plan.json").write_text(json.dumps(self.plan()))
        (self.folder / "settings.json").write_text(json.dumps(self.settings()))
        for name, form in (("hostfile", "{} slots={}\n"), ("hostfile.hydra", "{}:{}\n")):
            (self.folder / name).write_text("".join(form.format(host, self.slots) for host in self.names))
        agent = self.folder / "agent"
        agent.write_text((_HERE / "agent.sh").read_text().replace("STATE", str(self.folder)))
        agent.chmod(0o755)

    def _start_head(self, tied: Sequence[str]) -> None:
        with (self.folder / "log").open("w") as log:
            self._head = subprocess.Popen(
                [*tied, *UNSHARE, *_HOST, str(self.folder), HEAD],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), state.MARKER: self.name},
                start_new_session=True,
            )
        assert self._head.stdout is not None
        with self._head.stdout as stream:
            if stream.readline() != "ready\n":
                raise self._failed(f"cluster {self.name}")

    def _failed(self, what: str) -> RuntimeError:
        return RuntimeError(f"{what} does not start:\n{(self.folder / 'log').read_text()}")

    def enter(self, argv: Sequence[str], host: str = HEAD, *, cwd: Path | None = None) -> list[str]:
        """Give the command line that runs a command on a host, in a folder (this one) and the caller's environment.

        A TERM that ends it on the machine reaches the command on the host. Open MPI's ranks yield there while they
        wait, since all hosts share the machine's cores.
        """
        if host != HEAD:
            argv = [str(self.folder / "agent"), host, shlex.join(argv)]
        own = {"TMPDIR": str(self.local), state.MARKER: self.name, **_SHARED_CORES}
        words = [f"{name}={value}" for name, value in own.items()]
        pid = (self.folder / "pids" / HEAD).read_text()
        return ["nsenter", "--target", pid, *_ENTER, "-C", str(cwd or Path.cwd()), *words, *argv]

    def run(
        self,
        argv: Sequence[str],
        host: str = HEAD,
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on a host to its end and capture its output.

        Args:
            argv: Program and arguments.
            host: A name out of `names`, or the head.
            env: The whole environment; this process's own by default.
            timeout_s: Deadline in seconds.
            check: Whether a status other than 0 raises.

        Raises:
            RuntimeError: It failed; with its output.
            subprocess.TimeoutExpired: It did not end in time.
        """
        ran = subprocess.run(
            self.enter(argv, host),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=env,
            timeout=timeout_s,
        )
        if check and ran.returncode:
            raise RuntimeError(f"{shlex.join(argv)} on {host}: status {ran.returncode}\n{ran.stdout}{ran.stderr}")
        return ran

    def command(self, mpi: Mpi, argv: Sequence[str], placement: Placement) -> list[str]:
        """Give the command line that starts a program from the head, rank by rank on the hosts of a placement."""
        return self.enter(["env", *self.launcher_variables(), *launcher(mpi, placement), *argv])

    def launcher_variables(self) -> list[str]:
        """Give the variables with which a plain mpirun on the head finds the hosts, as NAME=value."""
        agent, hostfile = self.folder / "agent", self.folder / "hostfile"
        values: dict[str, Any] = {
            "OMPI_ALLOW_RUN_AS_ROOT": 1,
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": 1,
            "PRTE_MCA_plm_ssh_agent": agent,
            "PRTE_MCA_prte_default_hostfile": hostfile,
            "PRTE_MCA_hwloc_default_binding_policy": "none",  # every host would take the machine's first core
            "HYDRA_LAUNCHER": "ssh",
            "HYDRA_LAUNCHER_EXEC": agent,
            "HYDRA_HOST_FILE": f"{hostfile}.hydra",
        }
        return [f"{name}={value}" for name, value in values.items()]

    def kill(self, name: str) -> None:
        """End every process of a host at once, as a power failure does."""
        pid = self.folder / "pids" / name
        self.run(["kill", "-KILL", pid.read_text()])
        pid.unlink()
        for end in self._ports(name):  # the kernel takes them down too, but later
            self.run(["ip", "link", "delete", end], check=False)

    def start(self, name: str) -> None:
        """Start a host that was killed."""
        if self.run([*_HOST, str(self.folder), name, "start"], check=False).returncode:
            raise self._failed(name)

    def cut(self, name: str) -> None:
        """Take a host's links down; its processes live on."""
        for end in self._ports(name):
            self.run(["ip", "link", "set", end, "down"])

    def heal(self, name: str) -> None:
        """Bring a host's links back."""
        for end in self._ports(name):
            self.run(["ip", "link", "set", end, "up"])

    def shape(self, name: str, rate: str) -> None:
        """Limit one host's links in both directions to another rate than that of all, in tc's words."""
        host = next(one for one in self.nodes if one.name == name)
        for where, interfaces in ((HEAD, self._ports(name)), (name, [link.interface for link in host.links])):
            for command in limits(interfaces, rate):
                self.run(command, where)

    def _ports(self, name: str) -> list[str]:
        return [port(name, number) for number in range(len(self.subnets))]
