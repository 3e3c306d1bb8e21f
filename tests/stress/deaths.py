"""Kill ranks inside a collective, until two are left: what it gives the others is right, or they all get an error.

python tests/stress/deaths.py --rounds 20 [--hosts 4]: each round is a job of 4 ranks, of which two are killed, one
after the other, while the library is at work; half of the rounds reduce 4 bytes, half 1 MiB.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import Job, known_mpis

RANKS, LEFT, BEFORE = 4, 2, 20
SIZES = (4, 2**20)
LONGEST_S = 0.002  # from the moment at which a collective waits, or is inside the library, to the kill
JOB_S = 200.0


class Rank:
    """One rank of the job."""

    def __init__(self, backend: str, size: int, seed: int) -> None:
        import hpccomm

        self.me = int(os.environ["OMPI_COMM_WORLD_RANK"])
        draw = random.Random(seed)
        self.deaths = {rank: draw.uniform(0, LONGEST_S) for rank in draw.sample(range(RANKS), RANKS - LEFT)}
        self.count, self.good = size // 4, 0
        self.left = list(range(RANKS))
        self.world = hpccomm.init(backend, timeout_s=60, on_lost_rank="shrink")

    def play(self) -> None:
        """Reduce again and again, one rank after the other dying, and check whatever comes out."""
        with self.world:
            for victim in self.deaths:
                self.repeat(BEFORE)
                if victim == self.me:
                    threading.Thread(target=self.die, daemon=True).start()
                while self.reduced():
                    pass
                began = time.monotonic()
                lost = [self.left[rank] for rank in self.world.shrink()]
                assert lost == [victim], lost
                self.left.remove(victim)
                self.repeat(BEFORE)
                print(f"rank {self.me}: went on {1000 * (time.monotonic() - began):.0f} ms after the error", flush=True)
        print(f"rank {self.me}: {self.good} were right", flush=True)

    def repeat(self, times: int) -> None:
        for _ in range(times):
            assert self.reduced()

    def reduced(self) -> bool:
        """Sum what only these ranks add up to, and tell whether no rank was lost in it, on any of them."""
        import torch
        import torch.distributed as dist

        from hpccomm.errors import RankLostError

        tensor = torch.full((self.count,), 2.0**self.me)
        try:
            dist.all_reduce(tensor)
            well = True
        except RankLostError:
            well = False
        if well and not bool((tensor == sum(2.0**rank for rank in self.left)).all()):
            print(f"WRONG: {tensor.unique().tolist()} on rank {self.me} of {self.left}", flush=True)
        self.good += well
        return self.world.agree(well)

    def die(self) -> None:
        """Kill this process a moment after it is inside the library, or waits for the library."""
        from hpccomm.watch.flight import flight

        log = next(iter(flight.logs.values()))
        end = time.monotonic() + 1.0
        inside = False
        while not inside and time.monotonic() < end:
            current = log.current
            inside = current is not None and (current.in_library or self.count == 1)
        time.sleep(self.deaths[self.me])
        print(f"dies {'inside the library' if inside else 'anywhere'}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def play(seed: int, options: argparse.Namespace, cluster: object) -> bool:
    """Play one round, and tell whether it held."""
    mpi = next(mpi for mpi in known_mpis() if mpi.is_open_mpi)
    size = SIZES[seed % len(SIZES)]
    argv = [mpi.python, str(Path(__file__).resolve()), "--rank", "--seed", str(seed), "--size", str(size)]
    argv += ["--backend", options.backend]
    tolerant = replace(mpi, options=(*mpi.options, "--with-ft", "ulfm"))
    command = tolerant.command(RANKS, argv)
    if cluster is not None:
        hosts = [f"node{number}" for number in range(1, options.hosts + 1)]
        placement = tuple(hosts[rank * options.hosts // RANKS] for rank in range(RANKS))
        command = cluster.command(tolerant, argv, placement)  # type: ignore[attr-defined]
    result = Job(command, env=mpi.environment()).wait(JOB_S)
    right = result.stdout.count(" were right") == LEFT and "WRONG" not in result.stdout
    held = right and result.returncode == 0 and not result.timed_out and not result.leftovers
    deaths = [line for line in result.stdout.splitlines() if line.startswith("dies")]
    times = [line.partition("went on ")[2].split()[0] for line in result.stdout.splitlines() if "went on" in line]
    print(f"seed {seed}, {size} B: {'held' if held else result}: {deaths}, on after {', '.join(times)} ms", flush=True)
    return held


def main() -> int:
    """Be a rank, or play the rounds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--backend", default="mpi4py")
    parser.add_argument("--hosts", type=int, default=1, help="of a cluster on this machine")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--size", type=int, default=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        Rank(options.backend, options.size, options.seed).play()
        return 0
    from bench.cluster.cluster import Cluster

    with Cluster(hosts=options.hosts) if options.hosts > 1 else nullcontext() as cluster:
        held = [play(options.seed + number, options, cluster) for number in range(options.rounds)]
    print(f"{sum(held)} of {len(held)} rounds held")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
