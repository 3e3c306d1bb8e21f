"""Ranks that end well without closing their world; one of them has met exits that came to nothing."""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist

import hpccomm

world = hpccomm.init()
kept = []  # lives until the interpreter goes down
if world.topology.rank == world.topology.world_size - 1:
    try:
        sys.exit(2)
    except SystemExit as exit_of_two:
        kept.append(exit_of_two)
    try:
        argparse.ArgumentParser().parse_args(["--no-such-option"])
    except SystemExit as exit_of_argparse:
        kept.append(exit_of_argparse)
tensor = torch.ones(3)
dist.all_reduce(tensor)
print(f"sum {tensor[0]:g}\n", end="", flush=True)
sys.exit(0)
