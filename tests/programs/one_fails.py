"""The last rank ends in the way that the first argument names, while the others wait for it."""

from __future__ import annotations

import argparse
import signal
import sys

import torch
import torch.distributed as dist

import hpccomm

WAYS = {
    "raise": lambda: 1 // 0,
    "exit": lambda: sys.exit(3),
    "text": lambda: sys.exit("it went wrong"),
    "argparse": lambda: argparse.ArgumentParser(prog="a-program").parse_args(["--no-such-option"]),
    "interrupt": lambda: signal.raise_signal(signal.SIGINT),
}


def main(way: str) -> None:
    if way == "with":
        with hpccomm.init() as world:
            if world.topology.rank == world.topology.world_size - 1:
                raise SystemExit(3)
            dist.barrier()
        return
    world = hpccomm.init()
    if world.topology.rank == world.topology.world_size - 1:
        WAYS[way]()
    else:
        dist.all_reduce(torch.ones(3))
    print("went on", flush=True)


main(sys.argv[1])
