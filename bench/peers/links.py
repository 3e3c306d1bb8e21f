"""hpccomm beside its peers where links are slow: four hosts of two ranks on this machine, 100 Mbit/s each way.

``python -m bench.peers.links --json OUT.json`` brings the hosts up and prints a table: times, the share of what plain
sockets reach on the same links in the same run (a ring of hosts, all sending and receiving at once), and the bytes that
leave a host over the least that an all-reduce must send. Needs root, and an MPI in this interpreter's environment.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import hpccomm
from bench.cluster.cluster import Cluster
from bench.cluster.placement import by_slot
from bench.peers.contenders import COMM, Call, Memory, contenders
from bench.peers.measure import repeated
from bench.prediction import Mpi
from hpccomm.units import format_bytes, parse_bytes

HOSTS, RANKS_PER_HOST, RATE, INTERFACE = 4, 2, "100mbit", "eth0"
SIZES = "1KiB 16KiB 256KiB 1MiB 4MiB 32MiB"
OURS = (
    "hierarchical(shm, gloo)",
    "hierarchical(mpi4py, gloo)",
    "hierarchical(shm, ring(mpi4py))",
    "hierarchical(shm, gloo, wire=bfloat16)",
)
SOCKETS = "plain sockets"


def main() -> None:
    """Bring the hosts up and measure there, or, inside, measure."""
    if sys.argv[1:2] == ["inside"]:
        inside(sys.argv[2:])
        return
    options = parse(sys.argv[1:])
    with Cluster(hosts=HOSTS, slots=RANKS_PER_HOST, rate=RATE) as cluster:
        placement = by_slot(cluster.names, np=HOSTS * RANKS_PER_HOST, slots=RANKS_PER_HOST)
        command = [sys.executable, "-m", "bench.peers.links", "inside", *sys.argv[1:]]
        ran = subprocess.run(cluster.command(Mpi(), command, placement), stdout=subprocess.PIPE, text=True, check=True)
    rows = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    Console(width=180).print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


def parse(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", nargs="+", default=list(OURS), help="hpccomm's")
    parser.add_argument("--sizes", nargs="+", type=parse_bytes, default=[parse_bytes(size) for size in SIZES.split()])
    parser.add_argument("--seconds", type=float, default=10.0, help="a row (default: 10)")
    parser.add_argument("--json", type=Path, help="write the rows there")
    return parser.parse_args(argv)


def inside(argv: list[str]) -> None:
    """Measure on the ranks, and print a line of JSON for each row."""
    warnings.simplefilter("ignore", FutureWarning)
    options = parse(argv)
    torch.set_num_threads(1)
    with hpccomm.init("mpi4py", timeout_s=300) as world:
        leads = world.topology.local_rank == 0
        calls = contenders("all_reduce", options.backend)
        del calls["limit"]
        calls[SOCKETS] = SocketRing(world.exchange, leads=leads)
        for size in options.sizes:
            least = 2 * (HOSTS - 1) / HOSTS * size
            counted = {name: CountedCall(call, leads=leads) for name, call in calls.items()}
            times = repeated(counted, Memory.of(size), options.seconds)
            for name, samples in times.items():
                sent = max(COMM.allgather(counted[name].sent))
                row = {"contender": name, "size_bytes": size, "iterations": len(samples)}
                row["time_us_median"] = round(statistics.median(taken for taken, _ in samples) * 1e6)
                row["sent_over_least"] = round(sent / counted[name].calls / least, 3)
                if world.topology.rank == 0:
                    print(json.dumps(row), flush=True)


class CountedCall:
    """A call, with the bytes that leave this host during all calls, where this rank leads its host."""

    def __init__(self, call: Call, *, leads: bool) -> None:
        self._call, self._leads = call, leads
        self.calls = self.sent = 0

    def __call__(self, memory: Memory) -> None:
        """Make it; the ranks wait for each other after it, so that all that it sends is counted."""
        before = self._bytes()
        self._call(memory)
        self.calls += 1
        self.sent += self._bytes() - before

    def _bytes(self) -> int:
        return int(Path(f"/sys/class/net/{INTERFACE}/statistics/tx_bytes").read_text()) if self._leads else 0


class SocketRing:
    """Hosts in a ring, each sending to the next and receiving from the last at once, by plain TCP sockets."""

    def __init__(self, exchange: Any, *, leads: bool) -> None:
        self._leads = leads
        server = socket.create_server(("", 0)) if leads else None
        name = socket.gethostname()
        where = exchange.all_gather((name, server.getsockname()[1] if server else None))
        leaders = [place for place in where if place[1] is not None]
        if server is not None:
            after = leaders[(leaders.index((name, server.getsockname()[1])) + 1) % len(leaders)]
            self._out = socket.create_connection(after)
            self._into, _ = server.accept()
            self._data, self._space = bytes(1 << 16), bytearray(1 << 20)

    def __call__(self, memory: Memory) -> None:
        """Send and receive what an all-reduce of this size must."""
        if self._leads:
            count = int(2 * (HOSTS - 1) / HOSTS * memory.whole.numel() * 4)
            receiving = threading.Thread(target=self._receive, args=(count,))
            receiving.start()
            left = count
            while left:
                left -= self._out.send(memoryview(self._data)[: min(left, len(self._data))])
            receiving.join()

    def _receive(self, left: int) -> None:
        while left:
            left -= self._into.recv_into(self._space, min(left, len(self._space)))


def table(rows: list[dict[str, Any]]) -> Table:
    """Lay the rows out: time, share of the limit, bytes sent over the least."""
    names = list(dict.fromkeys(row["contender"] for row in rows))
    shown = Table(title=f"all_reduce, {HOSTS} hosts of {RANKS_PER_HOST} ranks, {RATE}: ms, % of sockets, bytes / least")
    for name in ("size", *names):
        shown.add_column(name, justify="right")
    for size in dict.fromkeys(row["size_bytes"] for row in rows):
        of = {row["contender"]: row for row in rows if row["size_bytes"] == size}
        shown.add_row(format_bytes(size), *(cell(of[name], of[SOCKETS]) for name in names))
    return shown


def cell(row: Mapping[str, Any], limit: Mapping[str, Any]) -> str:
    """Show one measurement."""
    share = limit["time_us_median"] / row["time_us_median"]
    return f"{row['time_us_median'] / 1e3:.1f}  {share:.0%}  {row['sent_over_least']:.2f}"


if __name__ == "__main__":
    main()
