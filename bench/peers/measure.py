"""Measure the contenders in the ranks of one MPI job, one call of each in turn, and print a line of JSON for each row.

``mpirun -np 2 --map-by core --bind-to core python -m bench.peers.measure --backend shm mpi4py`` (MPICH: ``-bind-to
core``). Per repetition the slowest rank counts; CPU time is that of all ranks together.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections.abc import Mapping

import torch

import hpccomm
from bench.peers.contenders import COLLECTIVES, COMM, Call, Memory, bare, contenders
from hpccomm.units import parse_bytes

_LEAST, _MOST = 5, 400  # repetitions


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore", FutureWarning)
    options = parse()
    torch.set_num_threads(1)
    with hpccomm.init("mpi4py", timeout_s=300) as world:
        for collective in options.collective:
            calls = bare(collective) if options.bare else contenders(collective, options.backend)
            for size in options.sizes:
                for name, samples in repeated(calls, Memory.of(size), options.seconds).items():
                    if world.topology.rank == 0:
                        print(json.dumps(row(collective, name, size, samples)), flush=True)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--backend", nargs="+", default=["shm", "mpi4py"], help="hpccomm's (default: shm mpi4py)")
    parser.add_argument("--bare", action="store_true", help="measure the MPI library alone")
    parser.add_argument("--collective", nargs="+", choices=COLLECTIVES, default=["all_reduce"])
    parser.add_argument("--sizes", nargs="+", type=parse_bytes, default=[parse_bytes("1MiB")], help="e.g. 4 64KiB 1MiB")
    parser.add_argument("--seconds", type=float, default=2.0, help="a row (default: 2)")
    return parser.parse_args(sys.argv[1:])


def row(collective: str, name: str, size: int, samples: list[tuple[float, float]]) -> dict[str, object]:
    """Give a row as the results keep it."""
    times = [taken for taken, _ in samples]
    return {
        "collective": collective,
        "contender": name,
        "ranks": COMM.size,
        "size_bytes": size,
        "iterations": len(times),
        "time_us_median": round(statistics.median(times) * 1e6, 2),
        "time_us_min": round(min(times) * 1e6, 2),
        "cpu_s_per_GB": round(sum(cpu for _, cpu in samples) / (size * len(samples) / 1e9), 4),
    }


def repeated(calls: Mapping[str, Call], memory: Memory, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Make one call of each in turn, for so many seconds each.

    Returns:
        For each, of each repetition: the slowest rank's time, and the CPU time of all ranks together, in seconds.
    """
    for call in calls.values():
        timed(call, memory)  # warms up
    first = sum(timed(call, memory)[0] for call in calls.values())
    repetitions = COMM.bcast(int(min(_MOST, max(_LEAST, seconds * len(calls) / max(first, 1e-6)))))
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for _ in range(repetitions):
        for name, call in calls.items():
            taken[name].append(timed(call, memory))
    together = {name: list(zip(*COMM.allgather(samples), strict=True)) for name, samples in taken.items()}
    return {
        name: [(max(time for time, _ in ranks), sum(cpu for _, cpu in ranks)) for ranks in samples]
        for name, samples in together.items()
    }


def timed(call: Call, memory: Memory) -> tuple[float, float]:
    """Make a call when all ranks are ready, and give its time and this process's CPU time."""
    for tensor in (memory.whole, memory.other, memory.part):
        tensor.fill_(1)
    COMM.Barrier()
    cpu, start = time.process_time(), time.perf_counter()
    call(memory)
    taken = time.perf_counter() - start
    return taken, time.process_time() - cpu


if __name__ == "__main__":
    main()
