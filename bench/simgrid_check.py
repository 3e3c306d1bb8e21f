"""Predicted times against SimGrid, which moves the same messages over the links of a described network.

``/usr/bin/python3 -m bench.simgrid_check`` (Debian's python3-simgrid) prints a table: what `predict` says, what SimGrid
says, and how many messages were on the busiest link at once. Where that is 1 no link is shared, and the two must agree;
`predict` knows of no sharing but a node's injection, so that the rest of the table shows what contention adds.
All of it takes about 6 minutes; ``--most-ranks 64`` leaves larger cases out.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hpccomm.algorithms import Algorithm, find
from hpccomm.algorithms.hierarchical import hierarchical
from hpccomm.cost import Fabric, Link, predict
from hpccomm.schedule import Step
from hpccomm.units import format_bytes

LINK, LOOPBACK = Link(2e-6, 1e-9), Link(1e-6, 1e-10)
SETTINGS = ("network/model:CM02", "network/crosstraffic:0", "network/TCP-gamma:0")
LATENCY_HOPS = {"star": 2, "ring": 1, "fat tree": 4, "fat tree 4:1": 4}
"""Links on the way between two nodes: neighbours on the ring, nodes of different leaf switches in the trees."""


Message = tuple[int, int, Any]
"""Source, dest and SimGrid's communication."""


@dataclass(frozen=True)
class Case:
    """An all-reduce on a platform: one rank a node, or several that share its link."""

    platform: str
    algorithm: str
    num_nodes: int
    ranks_per_node: int = 1
    nbytes: int = 16 << 20

    @property
    def nodes(self) -> tuple[int, ...]:
        """Node of each rank."""
        return tuple(rank // self.ranks_per_node for rank in range(self.num_nodes * self.ranks_per_node))

    @property
    def schedules(self) -> Algorithm:
        """What runs."""
        if self.algorithm == "hierarchical(ring, ring)":
            return hierarchical(self.nodes, intra=find("ring"), inter=find("ring"))
        return find(self.algorithm)

    def predicted_s(self) -> float:
        """Give what the cost model says."""
        fabric = Fabric(self.nodes, LOOPBACK, LINK, injection_bytes_per_s=1 / LINK.beta_s_per_byte)
        return predict(self.schedules, "all_reduce", self.nbytes // 4, itemsize=4, fabric=fabric)


@dataclass(frozen=True)
class Row:
    """What came of a case; `together` is the most messages that were on one link at a time."""

    case: Case
    predicted_s: float
    simgrid_s: float
    together: int


FLAT = ("ring", "tree", "recursive_doubling", "halving_doubling", "pairwise")
CASES = (
    *(Case(platform, name, 64) for platform in ("star", "fat tree", "fat tree 4:1", "ring") for name in FLAT),
    *(Case("star", "hierarchical(ring, ring)", nodes, 8) for nodes in (4, 32)),
    *(Case("fat tree 4:1", "hierarchical(ring, ring)", nodes, 8) for nodes in (16, 64)),
    *(Case(platform, "ring", 256) for platform in ("fat tree", "ring")),
    *(
        Case(platform, name, 1024)
        for platform in ("fat tree", "fat tree 4:1", "ring")
        for name in ("tree", "recursive_doubling", "halving_doubling")
    ),
)


def platform_xml(case: Case) -> str:
    """Describe the network; every link carries both ways at once."""
    per_leaf = 8
    leaves = max(1, case.num_nodes // per_leaf)
    topology = {
        "star": "",
        "ring": f'topology="TORUS" topo_parameters="{case.num_nodes}"',
        "fat tree": f'topology="FAT_TREE" topo_parameters="2;{per_leaf},{leaves};1,{per_leaf};1,1"',
        "fat tree 4:1": f'topology="FAT_TREE" topo_parameters="2;{per_leaf},{leaves};1,{per_leaf // 4};1,1"',
    }[case.platform]
    rates = {"bw": 1 / LINK.beta_s_per_byte, "loopback_bw": 1 / LOOPBACK.beta_s_per_byte}
    delays = {"lat": LINK.alpha_s / LATENCY_HOPS[case.platform], "loopback_lat": LOOPBACK.alpha_s}
    words = [f'{name}="{value:.0f}Bps"' for name, value in rates.items()]
    words += [f'{name}="{value:.9f}s"' for name, value in delays.items()]
    return (
        '<?xml version="1.0"?><!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd"><platform version="4.1">'
        f'<cluster id="c" prefix="n" suffix="" radical="0-{case.num_nodes - 1}" speed="1Gf" {" ".join(words)} '
        f'sharing_policy="SPLITDUPLEX" {topology}/></platform>'
    )


def measure(case: Case) -> Row:
    """Run a case in SimGrid, whose engine a process has once."""
    from simgrid import Actor, Engine, Mailbox

    engine = Engine(["bench", *(f"--cfg={one}" for one in SETTINGS), "--log=root.thres:critical"])
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
        file.write(platform_xml(case))
        file.flush()
        engine.load_platform(file.name)
    messages: list[Message] = []
    hosts = [engine.host_by_name(f"n{node}") for node in range(case.num_nodes)]
    algorithm, size = case.schedules, len(case.nodes)
    assert algorithm.all_reduce is not None
    for rank in range(size):
        steps = list(algorithm.all_reduce(rank, size, case.nbytes // 4))
        actor = Actor.create(f"rank{rank}", hosts[case.nodes[rank]], _run, rank, steps, messages)
        for source in {step.source for step in steps if step.source >= 0}:
            Mailbox.by_name(f"{source}-{rank}").set_receiver(actor)  # so that messages travel before they are asked for
    engine.run()
    return Row(case, case.predicted_s(), engine.clock, _together(messages, case.nodes, hosts))


def _run(rank: int, steps: list[Step], messages: list[Message]) -> None:
    """Take a rank's steps, one message out at a time."""
    from simgrid import Mailbox

    sending = None
    for step in steps:
        if step.send[1] > step.send[0] and step.dest != rank:
            if sending is not None:
                sending.wait()
            sending = Mailbox.by_name(f"{rank}-{step.dest}").put_async(True, 4 * (step.send[1] - step.send[0]))
            messages.append((rank, step.dest, sending))
        if step.recv[1] > step.recv[0] and step.source != rank:
            Mailbox.by_name(f"{step.source}-{rank}").get()
    if sending is not None:
        sending.wait()


def _together(messages: list[Message], nodes: tuple[int, ...], hosts: list[Any]) -> int:
    """Give the most messages that were on one link at a time; what is inside a node has no such link."""

    @cache
    def route(source: int, dest: int) -> tuple[str, ...]:
        return tuple(link.name for link in hosts[source].route_to(hosts[dest])[0])

    changes: defaultdict[str, list[tuple[float, int]]] = defaultdict(list)
    for source, dest, comm in messages:
        if nodes[source] != nodes[dest]:
            for link in route(nodes[source], nodes[dest]):
                changes[link] += [(round(comm.start_time, 10), 1), (round(comm.finish_time, 10), -1)]
    return max((_most(sorted(ends)) for ends in changes.values()), default=0)


def _most(changes: list[tuple[float, int]]) -> int:
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def rows(cases: Iterable[Case]) -> Iterator[Row]:
    """Run the cases, each in a process of its own."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        yield from pool.imap(measure, cases)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser("python -m bench.simgrid_check", description=__doc__)
    parser.add_argument("--most-ranks", type=int, default=1024)
    options = parser.parse_args()
    print("| platform | all_reduce | ranks | size | predicted ms | SimGrid ms | predicted/SimGrid | on one link |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for row in rows(case for case in CASES if len(case.nodes) <= options.most_ranks):
        print(_line(row), flush=True)


def _line(row: Row) -> str:
    case = row.case
    ranks = f"{case.num_nodes} x {case.ranks_per_node}" if case.ranks_per_node > 1 else str(case.num_nodes)
    times = f"{row.predicted_s * 1e3:.2f} | {row.simgrid_s * 1e3:.2f} | {row.predicted_s / row.simgrid_s:.2f}"
    return f"| {case.platform} | {case.algorithm} | {ranks} | {format_bytes(case.nbytes)} | {times} | {row.together} |"


if __name__ == "__main__":
    main()
