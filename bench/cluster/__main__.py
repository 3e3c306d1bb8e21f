"""Clusters by hand: `python -m bench.cluster up 4`, then `run`, `shell`, `status`, `down`.

    python -m bench.cluster up 4 --slots 2 [--slurm]
    python -m bench.cluster run mpirun -np 8 --map-by node .venv/bin/python train.py
    python -m bench.cluster run --host node2 ip address
    python -m bench.cluster shell
    python -m bench.cluster down

On the head, mpirun (Open MPI or MPICH) finds the hosts by itself; with --slurm, srun and sbatch do.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from bench.cluster import slurm, state
from bench.cluster.cluster import Cluster
from bench.cluster.host import HEAD


def main(arguments: Sequence[str] | None = None) -> None:
    """Do what the command line asks for."""
    options = parse(arguments)
    reason = state.unavailable()
    if reason:
        sys.exit(reason)
    try:
        options.action(options)
    except (LookupError, FileExistsError, RuntimeError, ValueError) as error:
        sys.exit(str(error))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    text = __doc__ or ""
    parser = argparse.ArgumentParser(
        "python -m bench.cluster", description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    defaults = Cluster()
    one = actions.add_parser("up", help="start a cluster, which stays until it is taken down")
    one.set_defaults(action=up)
    one.add_argument("hosts", type=int, nargs="?", default=defaults.hosts)
    one.add_argument("--slots", type=int, default=defaults.slots, help="ranks a host")
    one.add_argument("--subnets", nargs="+", default=defaults.subnets, help="networks that join the hosts")
    one.add_argument("--interfaces", nargs="+", default=defaults.interfaces, help="interface names, by host")
    one.add_argument("--rate", default=defaults.rate, help="limit of each link, e.g. 200mbit (more is inexact)")
    one.add_argument("--slurm", action="store_true", help="with Slurm")
    for name, action, text in (
        ("run", run, "run a command on a host"),
        ("shell", shell, "open a shell on a host"),
        ("down", down, "end a cluster, and what crashed owners left of others"),
    ):
        one = actions.add_parser(name, help=text)
        one.set_defaults(action=action)
    for one in actions.choices.values():
        one.add_argument("--name", default="default", help="name of the cluster")
    for name in ("run", "shell"):
        actions.choices[name].add_argument("--host", default=HEAD)
    actions.choices["run"].add_argument("command", nargs=argparse.REMAINDER)
    actions.add_parser("status", help="list the clusters").set_defaults(action=status)
    return parser.parse_args(arguments)


def up(options: argparse.Namespace) -> None:
    """Start a cluster."""
    reason = slurm.missing() if options.slurm else None
    if reason:
        sys.exit(reason)
    cluster = Cluster(
        hosts=options.hosts,
        slots=options.slots,
        name=options.name,
        subnets=tuple(options.subnets),
        interfaces=tuple(options.interfaces),
        rate=options.rate,
    )
    cluster.up(stays=True)
    if options.slurm:
        slurm.Slurm(cluster=cluster).start()
    print(f"cluster {cluster.name} is up: {HEAD} and {', '.join(cluster.names)}")


def run(options: argparse.Namespace) -> None:
    """Become a command on a host."""
    cluster = Cluster.find(options.name)
    variables = () if slurm.Slurm(cluster=cluster).folder.exists() else cluster.launcher_variables()
    command = cluster.enter(["env", *variables, *options.command], options.host)
    os.execvp(command[0], command)


def shell(options: argparse.Namespace) -> None:
    """Become a shell on a host."""
    options.command = [os.environ.get("SHELL", "/bin/sh")]
    run(options)


def down(options: argparse.Namespace) -> None:
    """End a cluster and clear up."""
    state.clear()
    Cluster.find(options.name).down()


def status(_: argparse.Namespace) -> None:
    """List the clusters that there are."""
    crashed = state.abandoned()
    for folder in state.known():
        whose = "left by a crashed owner" if folder in crashed else "up"
        print(f"{folder.name}: {whose}, {len(state.processes(folder.name))} processes")


if __name__ == "__main__":
    main()
