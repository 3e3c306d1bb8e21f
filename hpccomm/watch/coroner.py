"""A small process beside the ranks of a host that names the one that ended without a word.

Hydra kills all ranks within milliseconds when one of them dies, so that no rank can say which it was. This program
is detached from them (setsid), sees the processes end, writes one line and ends too. It is run as a file, by an
interpreter without site packages, and imports nothing of hpccomm: ``coroner.py EARS HOST LAUNCHER RANK:PID …``. The
socket EARS is open before it starts, so that it hears of ranks that end meanwhile.

It speaks where the launcher speaks, and holds nothing of its rank open: Hydra waits for the end of a rank's output.
"""

from __future__ import annotations

import ctypes
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping

ALL = -1  # told where a rank that ends has the launcher end the others, `GRACE_S` later at the earliest
GRACE_S = 0.4
_PIDFD_GETFD = 438  # the system call, since Linux 5.6
_TELL_S = 1.0  # for which a rank that ends waits where many others are telling too


def summon(name: str, host: str, pids: Mapping[int, int]) -> None:
    """Start the process; ranks may tell from the return on.

    Args:
        name: Where ranks that end of their own accord say so: an abstract socket's name.
        host: The host's name, for the line.
        pids: The processes to watch, by rank.
    """
    watched = [f"{rank}:{pid}" for rank, pid in pids.items()]
    nothing = subprocess.DEVNULL
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ears:
        ears.bind(f"\0{name}")
        own, launcher = ears.fileno(), _parent_of(os.getppid())
        command = [sys.executable, "-I", "-S", __file__, str(own), host, str(launcher), *watched]
        subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[own], start_new_session=True)


def tell(name: str, *ranks: int) -> None:
    """Say that ranks end of their own accord, or, by `ALL`, that the others are ended then; nobody need listen."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.settimeout(_TELL_S)
        try:
            for rank in ranks:
                ours.sendto(f"{rank} {time.monotonic()}".encode(), f"\0{name}")
        except OSError:
            return


def main(inherited: str, host: str, launcher: str, *watched: str) -> None:
    """Wait for the first process that ends without having told, name it, and end; or end when none is left to do so."""
    voice = _voice_of(int(launcher))
    pids = {int(rank): int(pid) for rank, _, pid in (one.partition(":") for one in watched)}
    ears = socket.socket(fileno=int(inherited))
    ears.setblocking(False)
    first = _first_unheard(pids, ears)
    if first is not None:
        words = f"rank {first} on {host} (process {pids[first]}) ended without a word"
        os.write(voice, f"hpccomm: {words}\n".encode())


def _first_unheard(pids: Mapping[int, int], ears: socket.socket) -> int | None:
    """Wait for the first rank that ends without a word before the others are ended; None where they all have told.

    The kernel queues what becomes ready. What a rank tells comes before its end, and a launcher that kills the others
    at once comes after the one that died. A dying process's connections break before it has ended, so that another
    rank may fail, and say that it ends all, before that: it ends them `GRACE_S` later at the earliest.
    """
    gone: list[int] = []
    alive, order = _opened(pids, gone), select.epoll()
    for descriptor in (*alive, ears.fileno()):
        order.register(descriptor, select.EPOLLIN)
    told = _heard(ears)
    while not told.keys() - {ALL} >= pids.keys():
        left_s = told[ALL] + GRACE_S - time.monotonic() if ALL in told else None
        if left_s is not None and left_s < 0:
            return None
        if unheard := [rank for rank in gone if rank not in told]:
            return unheard[0]
        gone = []
        for descriptor, _ in order.poll(left_s):
            if descriptor in alive:
                order.unregister(descriptor)
                gone.append(alive.pop(descriptor))
        told = _heard(ears) | told
    return None


def _parent_of(pid: int) -> int:
    """Give a process's parent: of Hydra's proxy, what the user started; 0 where that is not known."""
    try:
        with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123 - no pathlib, it loads slowly
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _voice_of(launcher: int) -> int:
    """Give the launcher's standard error: the very same, else another one on the same file; else one that is mute."""
    try:
        shared = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, os.pidfd_open(launcher), 2, 0)
        return shared if shared >= 0 else os.open(f"/proc/{launcher}/fd/2", os.O_WRONLY | os.O_APPEND)
    except OSError:
        return 2


def _opened(pids: Mapping[int, int], gone: list[int]) -> dict[int, int]:
    """Give descriptors of the processes with their ranks, and add the ranks of those that are gone already."""
    alive = {}
    for rank, pid in pids.items():
        try:
            alive[os.pidfd_open(pid)] = rank
        except OSError:
            gone.append(rank)
    return alive


def _heard(ears: socket.socket) -> dict[int, float]:
    """Give the ranks that have told since the last call, with the time at which they did."""
    told: dict[int, float] = {}
    while True:
        try:
            rank, _, time_s = ears.recv(64).decode().partition(" ")
            told.setdefault(int(rank), float(time_s))
        except BlockingIOError:
            return told


if __name__ == "__main__":
    main(*sys.argv[1:])
