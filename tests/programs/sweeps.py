"""A child job beside a job's ranks, and what a sweep says where NCCL cannot run."""

from __future__ import annotations

import os
import sys

import hpccomm
from hpccomm.bench.__main__ import run
from hpccomm.bench.arguments import parse
from hpccomm.bench.sweep import measure
from hpccomm.launch import detect

launch = detect(os.environ)
with hpccomm.init("gloo") as world:
    options = parse(["--backend", "gloo", "-b", "4", "-e", "64", "-n", "5"])
    result = measure(world, {"HPCCOMM_QUIET_S": "7"}, options, timeout_s=90)
    failed = measure(world, {"HPCCOMM_QUIET_S": "none"}, options, timeout_s=90)
    if world.topology.rank == 0:
        assert not isinstance(result, str), result
        environment, rows = result["environment"], result["results"]
        print("measured", environment["ranks"], environment["launcher"], [row["size_bytes"] for row in rows])
        print("wrong", [row["wrong"] for row in rows])
        print("failed", failed)
sys.stdout.flush()
status = run(parse(["--sweep", "nccl.algo=ring,tree"]), launch, command_line="")
print("status", status, flush=True)
