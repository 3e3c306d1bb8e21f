"""Start, reduce and close once with every backend that the arguments name (`-`: none given); then end."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist

import hpccomm


def main(backends: list[str]) -> None:
    """Print one line a backend: what was asked, what ran, ranks on nodes, and the sum of rank + 1."""
    for asked in backends:
        with hpccomm.init(None if asked == "-" else asked, timeout_s=60) as world:
            tensor = torch.full((5,), float(world.topology.rank + 1))
            dist.all_reduce(tensor)
            nodes = "".join(map(str, world.topology.nodes))
            print(f"{asked} is {world.backend} on {nodes}: {tensor.tolist()}\n", end="", flush=True)


main(sys.argv[1:])
