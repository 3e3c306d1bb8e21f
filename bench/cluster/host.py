"""Process 1 of one host, in namespaces of its own: it makes the host what it is, then reaps orphans until killed.

    unshare … python -IS host.py STATE NAME          is the host
    python -IS host.py STATE NAME start              on the head: starts a host (again)

It reads STATE/plan.json, says "booted" and "ready" on its standard output, and waits for a line on its standard input
in between while the head plugs in its links. It needs root, iproute2, and the standard library alone, and imports
nothing of this package. The head is the parent of all hosts: its process namespace encloses theirs, so its end is the
end of every process of the cluster.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

UNSHARE = ("unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child")
HEAD = "head"
_BURST = "16kb"  # messages below this are never limited
_WHOLE_PACKETS = ("tso", "gso", "gro")  # offloads that make packets of up to 64 KiB, which no small bucket lets pass

Plan = Mapping[str, Any]


def main(state: Path, name: str, *verb: str) -> None:
    """Be a host, or start one from the head."""
    plan = json.loads((state / "plan.json").read_text())
    if verb == ("start",):
        start(state, plan, [name])
        return
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    record(state, name)
    isolate(state, plan, name)
    host = plan["hosts"][name]
    if name == HEAD:
        ip(command for interface, address, mac in host["links"] for command in switch(interface, address, mac))
        start(state, plan, [other for other in plan["hosts"] if other != HEAD])
    else:
        say("booted")
        sys.stdin.readline()
        ip(command for interface, address, _ in host["links"] for command in plugged(interface, address))
        ip(container_bridge(host["bridge"]) if host["bridge"] else ())
        shape([interface for interface, *_ in host["links"]], plan["rate"])
    say("ready")
    reap()


def record(state: Path, name: str) -> None:
    """Write down this process's id as the parent's process namespace has it, whose /proc is still mounted."""
    status = Path("/proc/self/status").read_text()
    seen = next(line.split()[1] for line in status.splitlines() if line.startswith("NSpid:"))
    (state / "pids" / name).write_text(seen)


def isolate(state: Path, plan: Plan, name: str) -> None:
    """Set the hostname and mount what hosts do not share."""
    socket.sethostname(name)
    tmpfs = ("mount", "-t", "tmpfs", "-o", f"size={plan['shm']},mode=1777", "tmpfs")
    run("mount", "-t", "proc", "proc", "/proc")
    run("mount", "-t", "sysfs", "-o", "ro", "sysfs", "/sys")  # its class/net shows this host's interfaces
    run("mount", "--bind", str(state / "etc" / name), "/etc/hosts")
    run(*tmpfs, "/dev/shm")
    run(*tmpfs, str(state / "local"))
    ip(["link set lo up"])


def start(state: Path, plan: Plan, names: Sequence[str]) -> None:
    """Start hosts side by side, from within the head, and plug in their links."""
    command = [*UNSHARE, sys.executable, "-IS", __file__, str(state)]
    with (state / "log").open("a") as log:
        streams: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log, "text": True}
        starting = {name: subprocess.Popen([*command, name], **streams, start_new_session=True) for name in names}
    for process in starting.values():
        expect(process.stdout, "booted")
    pids = {name: (state / "pids" / name).read_text() for name in names}
    hosts = plan["hosts"]
    ip(command for name in names for command in cables(name, hosts[name]["links"], hosts[HEAD]["links"], pids[name]))
    shape([port(name, number) for name in names for number in range(len(hosts[name]["links"]))], plan["rate"])
    for process in starting.values():
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.close()
    for process in starting.values():
        expect(process.stdout, "ready")


def port(name: str, number: int) -> str:
    """Name the head's end of a host's link to one of the networks."""
    return f"{name}-{number}"


def switch(interface: str, address: str, mac: str) -> list[str]:
    """Make one network's switch, an interface of the head."""
    return [f"link add {interface} address {mac} type bridge forward_delay 0", *plugged(interface, address)]


def cables(name: str, links: Sequence[Sequence[str]], switches: Sequence[Sequence[str]], pid: str) -> list[str]:
    """Plug a host into the switches."""
    commands = []
    for number, ((interface, _, mac), (bridge, *_)) in enumerate(zip(links, switches, strict=True)):
        end = port(name, number)
        commands.append(f"link add {end} type veth peer name {interface} address {mac} netns {pid}")
        commands.append(f"link set {end} master {bridge} up")
    return commands


def plugged(interface: str, address: str) -> list[str]:
    """Give an interface its address; an IPv6 one at once, without asking the neighbours whether it is free."""
    return [f"address add {address} dev {interface}" + " nodad" * (":" in address), f"link set {interface} up"]


def container_bridge(address: str) -> list[str]:
    """Make a bridge as container engines do, with one container's link in it, so that it has a carrier."""
    bridge = ["link add docker0 type bridge forward_delay 0", f"address add {address} dev docker0"]
    container = ["link add veth0 type veth peer name container0", "link set veth0 master docker0 up"]
    return [*bridge, *container, "link set container0 up", "link set docker0 up"]


def shape(interfaces: Sequence[str], rate: str) -> None:
    """Limit what leaves through interfaces; no rate, no limit."""
    for command in limits(interfaces, rate) if rate else ():
        run(*command)


def limits(interfaces: Iterable[str], rate: str) -> Iterator[tuple[str, ...]]:
    """Give the commands that limit what leaves through interfaces, whatever their limit was before."""
    for interface in interfaces:
        yield ("ethtool", "-K", interface, *(word for offload in _WHOLE_PACKETS for word in (offload, "off")))
        bucket = ("rate", rate, "burst", _BURST, "latency", "50ms")
        yield ("tc", "qdisc", "replace", "dev", interface, "root", "tbf", *bucket)


def ip(commands: Iterable[str]) -> None:
    """Have iproute2 run commands."""
    text = "".join(f"{command}\n" for command in commands)
    if text:
        subprocess.run(["ip", "-batch", "-"], input=text, text=True, check=True, stdout=sys.stderr)


def run(*command: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def say(word: str) -> None:
    """Tell the parent."""
    print(word, flush=True)


def expect(stream: IO[str] | None, word: str) -> None:
    """Read a word that another host's process says; a host that ends says nothing."""
    assert stream is not None
    said = stream.readline().strip()
    if said != word:
        raise SystemExit(f"a host said {said!r} instead of {word!r}")


def reap() -> None:
    """Do what process 1 is for, with nobody to talk to any more."""
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1):
        os.dup2(null, stream)
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        signal.sigwait({signal.SIGCHLD})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
