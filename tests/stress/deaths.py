"""Kill ranks inside a collective, until two are left: what it gives the others is right, or they all get an error.

python tests/stress/deaths.py --rounds 20 [--hosts 4]: each round is a job of 4 ranks, of which two are killed, one
after the other, while the library is at work: one while it sums 4 bytes, one while it sums 1 MiB.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

import hpccomm
from hpccomm.errors import RankLostError
from hpccomm.watch.flight import flight
from stress import tolerant

RANKS, SIZES = 4, (4, 2**20)
LEFT = RANKS - len(SIZES)
TIMES = 20  # that all goes well before a rank dies, and after
LONGEST_S = 0.002  # from the moment at which a collective waits, or is inside the library, to the kill
PATIENCE_S = 1.0  # for that moment


class Rank:
    """One rank of the job."""

    def __init__(self, backend: str, seed: int) -> None:
        self.me = int(os.environ["OMPI_COMM_WORLD_RANK"])
        draw = random.Random(seed)
        self.delay_s = draw.uniform(0, LONGEST_S)
        self.deaths = dict(zip(draw.sample(range(RANKS), len(SIZES)), draw.sample(SIZES, len(SIZES)), strict=True))
        self.left, self.right = list(range(RANKS)), 0
        self.world = hpccomm.init(backend, timeout_s=60, on_lost_rank="shrink")

    def play(self) -> None:
        """Reduce again and again, one rank after the other dying, and check whatever comes out."""
        with self.world:
            for victim, size in self.deaths.items():
                self.repeat(size)
                if victim == self.me:
                    threading.Thread(target=self.die, args=(size,), daemon=True).start()
                while self.sums(size):
                    pass
                self.go_on(victim)
                self.repeat(size)
        print(f"rank {self.me}: all {self.right} were right", flush=True)

    def repeat(self, size: int) -> None:
        """Have it go well some times."""
        assert all(self.sums(size) for _ in range(TIMES))

    def sums(self, size: int) -> bool:
        """Sum what only these ranks add up to, check what comes out, and tell whether all ranks got it."""
        tensor = torch.full((size // 4,), 2.0**self.me)
        try:
            dist.all_reduce(tensor)
        except RankLostError:
            return self.world.agree(False)
        if not bool((tensor == sum(2.0**rank for rank in self.left)).all()):
            print(f"WRONG: {tensor.unique().tolist()} on rank {self.me} of {self.left}", flush=True)
        self.right += 1
        return self.world.agree()

    def go_on(self, victim: int) -> None:
        """Shrink the world, and see that it lost nobody else."""
        began = time.monotonic()
        lost = [self.left[rank] for rank in self.world.shrink()]
        assert lost == [victim], lost
        self.left.remove(victim)
        print(f"rank {self.me}: shrank in {1000 * (time.monotonic() - began):.0f} ms", flush=True)

    def die(self, size: int) -> None:
        """Kill this process a moment after a collective waits or, of MPI's large ones, is inside the library's call."""
        log, end, waits = next(iter(flight.logs.values())), time.monotonic() + PATIENCE_S, False
        while not waits and time.monotonic() < end:
            current = log.current
            waits = current is not None and (current.in_library or size == min(SIZES))
        time.sleep(self.delay_s)
        print(f"dies summing {size} bytes, {'inside' if waits else 'anywhere'}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def main() -> int:
    """Be a rank, or play the rounds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--backend", default="mpi4py")
    parser.add_argument("--hosts", type=int, default=1, help="of a cluster on this machine")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        Rank(options.backend, options.seed).play()
        return 0
    right = 0
    with tolerant.hosts(options.hosts) as cluster:
        for seed in range(options.seed, options.seed + options.rounds):
            argv = [__file__, "--rank", "--seed", str(seed), "--backend", options.backend]
            result = tolerant.run(cluster, RANKS, argv)
            right += tolerant.held(result, LEFT)
            deaths = re.findall("dies summing (.*)", result.stdout), re.findall(r"shrank in (\d+ ms)", result.stdout)
            print(f"seed {seed}: {deaths if tolerant.held(result, LEFT) else result}", flush=True)
    print(f"{right} of {options.rounds} rounds held")
    return 0 if right == options.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
