"""Predicted against measured all-reduce times on a cluster of shaped hosts on this machine.

``python -m bench.prediction`` brings up four hosts with two ranks each behind links of 100 Mbit/s, measures the links
and the rate of additions, predicts each algorithm from these three alone, measures it, and prints the errors. Needs
root, and an Open MPI or MPICH in this interpreter's environment.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

import hpccomm
from bench.cluster.cluster import Cluster
from bench.cluster.placement import by_slot
from hpccomm.algorithms import ALGORITHMS, Algorithm
from hpccomm.algorithms.hierarchical import hierarchical
from hpccomm.cost import Fabric, Link, fit, predict
from hpccomm.units import format_bytes

HOSTS, RANKS_PER_HOST, RATE = 4, 2, "100mbit"
SIZES = (1 << 20, 16 << 20)
PING_SIZES = (1 << 10, 1 << 16, 1 << 18, 1 << 20, 1 << 22)
REPEATS = 3
CASES = ("ring(mpi4py)", "tree(mpi4py)", "halving_doubling(mpi4py)", "hierarchical(ring(mpi4py), ring(mpi4py))")


@dataclass(frozen=True)
class Mpi:
    """The MPI of this interpreter's environment."""

    mpirun: str = str(Path(sys.executable).with_name("mpirun"))
    is_open_mpi: bool = Path(sys.executable).with_name("prterun").exists()
    options: tuple[str, ...] = ()


def main() -> None:
    """Bring up the hosts and measure there."""
    with Cluster(hosts=HOSTS, slots=RANKS_PER_HOST, rate=RATE) as cluster:
        placement = by_slot(cluster.names, np=HOSTS * RANKS_PER_HOST, slots=RANKS_PER_HOST)
        inside = [sys.executable, "-m", "bench.prediction", "inside"]
        raise SystemExit(subprocess.run(cluster.command(Mpi(), inside, placement), check=False).returncode)


def inside() -> None:
    """Measure, predict and compare on the ranks."""
    torch.set_num_threads(1)
    with hpccomm.init("mpi4py", timeout_s=120) as world:
        fabric = measured_fabric(world)
        rows = [(case, size, predicted(case, size, fabric), measured(case, size)) for case in CASES for size in SIZES]
        if world.topology.rank == 0:
            show(world, fabric, rows)


def measured_fabric(world: hpccomm.World) -> Fabric:
    """Fit the link inside a host, the link between two hosts, and the time to add a byte."""
    first_across = world.topology.nodes.index(1)
    intra, inter = (fit([(size, ping_seconds(peer, size)) for size in PING_SIZES]) for peer in (1, first_across))
    links: list[tuple[Link, Link]] = world.exchange.all_gather((intra, inter))
    intra, inter = links[0]
    buffer, other = torch.ones(1 << 20), torch.ones(1 << 20)
    adding_s = statistics.median(timed(lambda: buffer.add_(other)) for _ in range(9))
    gamma = world.exchange.all_gather(adding_s / (4 << 20))[0]
    return Fabric(world.topology.nodes, intra, inter, gamma, 1 / inter.beta_s_per_byte)


def ping_seconds(peer: int, size: int) -> float:
    """Give half a round trip between rank 0 and a peer; 1 on the ranks that have no part in it."""
    rank, data = dist.get_rank(), torch.zeros(size, dtype=torch.uint8)
    dist.barrier()
    if rank not in (0, peer):
        return 1.0 + size

    def round_trip() -> None:
        if rank == 0:
            dist.send(data, peer)
            dist.recv(data, peer)
        else:
            dist.recv(data, 0)
            dist.send(data, 0)

    return statistics.median(timed(round_trip) for _ in range(REPEATS)) / 2


def measured(case: str, size: int) -> float:
    """Give the median over repetitions of the slowest rank's seconds."""
    group = dist.new_group(backend="hpccomm", pg_options=hpccomm.Options(case))
    tensor, times = torch.ones(size // 4), []
    for _ in range(REPEATS + 1):
        dist.barrier()
        slowest = torch.tensor([timed(lambda: dist.all_reduce(tensor, group=group))], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        times.append(slowest.item())
    return statistics.median(times[1:])


def predicted(case: str, size: int, fabric: Fabric) -> float:
    """Give what the cost model says of the same schedules."""
    return predict(algorithm_of(case, fabric), "all_reduce", size // 4, itemsize=4, fabric=fabric)


def algorithm_of(case: str, fabric: Fabric) -> Algorithm:
    """Give the algorithm of a backend expression of `CASES`."""
    name = case.partition("(")[0]
    if name == "hierarchical":
        return hierarchical(fabric.nodes, intra=ALGORITHMS["ring"], inter=ALGORITHMS["ring"])
    return ALGORITHMS[name]


def timed(action: object) -> float:
    """Give the seconds that a call takes."""
    assert callable(action)
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def show(world: hpccomm.World, fabric: Fabric, rows: list[tuple[str, int, float, float]]) -> None:
    """Print the fabric and the table."""
    for name, link in (("inside a host", fabric.intra), ("between hosts", fabric.inter)):
        rate = 1 / link.beta_s_per_byte / 1e6
        print(f"{name}: alpha {link.alpha_s * 1e6:.0f} us, {rate:.1f} MB/s")
    print(f"adding: {1 / fabric.gamma_s_per_byte / 1e9:.2f} GB/s; {world.topology}")
    table = Table("backend", "size", "predicted ms", "measured ms", "error")
    for case, size, expected, found in rows:
        error = f"{(expected / found - 1) * 100:+.0f} %"
        table.add_row(case, format_bytes(size), f"{expected * 1e3:.0f}", f"{found * 1e3:.0f}", error)
    Console(width=110).print(table)


if __name__ == "__main__":
    inside() if sys.argv[1:] == ["inside"] else main()
