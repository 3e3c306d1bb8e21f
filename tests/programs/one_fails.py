"""The last rank ends in the way that the first argument names, while the others wait for it."""

from __future__ import annotations

import argparse
import os
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
    "closed stdout": lambda: (sys.stdout.close(), 1 // 0),
    "no stdout": lambda: (vars(sys).update(stdout=None), 1 // 0),
    "closed stderr": lambda: (sys.stderr.close(), sys.__stderr__.close(), 1 // 0),
}
IS_LAST = (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("PMI_RANK") or os.environ.get("RANK")) == "1"


def main(way: str) -> None:
    """Start, have the last rank end, and wait for it."""
    with hpccomm.init() as world:
        if world.topology.rank != world.topology.world_size - 1:
            dist.all_reduce(torch.ones(3)) if way == "raise" else dist.barrier()
        elif way == "with":
            raise SystemExit(3)
        else:
            WAYS[way]()
    print("went on", flush=True)


if sys.argv[1] == "setting" and IS_LAST:
    os.environ["HPCCOMM_BACKEND"] = "gloo"
if sys.argv[1] == "left over":
    os.environ |= {"RANK": sys.argv[2], "WORLD_SIZE": "2"}
main(sys.argv[1])
