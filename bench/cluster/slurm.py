"""A real Slurm on a cluster's hosts: slurmctld on the head, slurmd on every host, a munged on each, no accounting.

The machine's own /etc/slurm and its munge key are not used. It knows no MPI but for what `srun --mpi=pmix` needs.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.cluster.cluster import Cluster
from bench.cluster.host import HEAD

_PACKAGES = {"slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client", "munged": "munge"}
_PMIX_LIBRARIES = "*/pmix2/lib/libpmix.so.2"  # under /usr/lib
_GPUS = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random")  # what each host claims to have: any devices will do
_START_S = 20.0
_POLL_S = 0.05
_RUNNING = {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED"}
# Short times, so that failures and limits are over soon. No cgroups and no binding: the CPUs do not exist.
_CONF = """
ClusterName={name}
SlurmctldHost=head({address})
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={local}/munge/socket,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={local}/slurmd
SlurmctldPidFile={local}/slurmctld.pid
SlurmdPidFile={local}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
GresTypes=gpu
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=5
InactiveLimit=0
KillWait=2
MessageTimeout=10
TCPTimeout=2
BatchStartTimeout=10
NodeName=DEFAULT CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory={memory} State=UNKNOWN
NodeName=node[1-{hosts}] Gres=gpu:{gpus}
PartitionName=main Nodes=node[1-{hosts}] Default=YES MaxTime=INFINITE DefaultTime=10 State=UP
"""
_SERVE = """
mount --bind {folder}/etc /etc/slurm
{mount_pmix}
mkdir -p {local}/munge
munged --force --key-file={folder}/munge.key --num-threads=1 --socket={local}/munge/socket \
    --pid-file={local}/munge/pid --log-file={folder}/munged.$(hostname).log --seed-file={local}/munge/seed
{daemon}
"""


def missing() -> str | None:
    """Say in one line which packages Slurm lacks here, or None."""
    absent = {package for tool, package in _PACKAGES.items() if shutil.which(tool, path=_path()) is None}
    if not list(Path("/usr/lib").glob(_PMIX_LIBRARIES)):
        absent.add("libpmix2")
    return f"Slurm needs the packages {' '.join(sorted(absent))}" if absent else None


@dataclass(frozen=True)
class JobEnd:
    """How a batch job ended: Slurm's word for its state, its exit status and signal, and how often it was requeued."""

    state: str
    status: int
    signal: int
    restarts: int


@dataclass(kw_only=True)
class Slurm:
    """Slurm on a cluster that is up; it ends with the cluster.

    Attributes:
        cluster: Where it runs.
        cpus: CPUs that each host claims to have.
    """

    cluster: Cluster
    cpus: int = 8
    folder: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder = self.cluster.folder / "slurm"

    def start(self) -> None:
        """Start all daemons and wait until every host is idle.

        Raises:
            RuntimeError: A daemon does not start, or a host does not get idle; with the logs' ends.
        """
        self._write()
        starting = [self._serving(name) for name in (HEAD, *self.cluster.names)]
        failed = [process.args for process in starting if process.wait()]
        end = time.monotonic() + _START_S
        while not failed and self._idle() < self.cluster.hosts:
            time.sleep(_POLL_S)
            failed = ["not idle in time"] * (time.monotonic() > end)
        if failed:
            raise RuntimeError(f"Slurm does not start: {failed}\n{self._logs()}")

    def serve(self, name: str) -> None:
        """Start the daemons of a host that was killed and started."""
        if self._serving(name).wait():
            raise RuntimeError(f"Slurm does not start on {name}\n{self._logs()}")

    def command(self, argv: Sequence[str]) -> list[str]:
        """Give the command line that runs a Slurm command on the head."""
        return self.cluster.enter(argv)

    def submit(
        self,
        script: Path,
        *options: str,
        arguments: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> int:
        """Submit a batch script and give the job's number.

        Args:
            script: The script.
            options: Of sbatch.
            arguments: Of the script.
            env: The whole environment; this process's own by default.
            cwd: The folder that the job starts in; this one by default.
        """
        command = ["sbatch", "--parsable", *options, str(script), *arguments]
        ran = subprocess.run(
            self.cluster.enter(command, cwd=cwd), check=True, text=True, stdout=subprocess.PIPE, env=env
        )
        return int(ran.stdout.partition(";")[0])

    def wait(self, job: int, *, timeout_s: float) -> JobEnd:
        """Wait for the end of a batch job.

        Raises:
            TimeoutError: It has not ended in time.
        """
        end = time.monotonic() + timeout_s
        while True:
            shown = self.cluster.run(["scontrol", "-o", "show", "job", str(job)]).stdout
            found = dict(re.findall(r"(\w+)=(\S*)", shown))
            if found["JobState"] not in _RUNNING:
                status, signal = map(int, found["ExitCode"].split(":"))
                return JobEnd(found["JobState"], status, signal, int(found["Restarts"]))
            if time.monotonic() > end:
                raise TimeoutError(f"job {job} is {found['JobState']} after {timeout_s:g} s")
            time.sleep(_POLL_S * 4)

    def _write(self) -> None:
        etc = self.folder / "etc"
        (self.folder / "state").mkdir(parents=True)
        etc.mkdir()
        values = {
            "name": self.cluster.name,
            "address": self.cluster.head.addresses[0],
            "local": self.cluster.local,
            "folder": self.folder,
            "hosts": self.cluster.hosts,
            "cpus": self.cpus,
            "gpus": len(_GPUS),
            "memory": 16000,
        }
        (etc / "slurm.conf").write_text(_CONF.format(**values))
        (etc / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # unused, but slurmd looks for one without it
        (etc / "gres.conf").write_text("".join(f"Name=gpu File={file}\n" for file in _GPUS))
        (etc / "mpi.conf").write_text(f"PMIxCliTmpDirBase={self.cluster.local}\n")
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))

    def _serving(self, name: str) -> subprocess.Popen[bytes]:
        daemon = "slurmctld -c" if name == HEAD else f"slurmd -N {name}"
        script = _SERVE.format(
            folder=self.folder, local=self.cluster.local, mount_pmix=self._mount_pmix(), daemon=daemon
        )
        command = self.cluster.enter(["sh", "-ec", script], name, cwd=Path("/"))
        with (self.folder / f"start.{name}.log").open("w") as log:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": _path()})

    def _mount_pmix(self) -> str:
        """Give Slurm's plugin libpmix.so, the name by which it loads what Debian's package calls libpmix.so.2."""
        for library in Path("/usr/lib").glob(_PMIX_LIBRARIES):
            plain = library.with_name("libpmix.so")
            if not plain.exists():
                copy = self.folder / "pmix"
                if not copy.exists():
                    shutil.copytree(library.parent, copy, symlinks=True)
                    (copy / plain.name).symlink_to(library.name)
                return f"mount --bind {copy} {library.parent}"
        return ""

    def _idle(self) -> int:
        found = self.cluster.run(["sinfo", "--noheader", "--states=idle", "--format=%D"], check=False).stdout
        return sum(map(int, found.split()))

    def _logs(self) -> str:
        return "\n".join(f"{log.name}:\n{log.read_text()[-800:]}" for log in sorted(self.folder.glob("*.log")))


def _path() -> str:
    return f"{os.environ.get('PATH', os.defpath)}{os.pathsep}/usr/sbin{os.pathsep}/sbin"
