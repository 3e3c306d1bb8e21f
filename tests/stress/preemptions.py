"""Warn a training job on a real Slurm again and again: requeued each time, it ends with the bits of one that is not.

python tests/stress/preemptions.py --rounds 20; needs what tests/cluster needs.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`

from bench.cluster import state as clusters
from bench.cluster.cluster import Cluster
from bench.cluster.slurm import JobEnd, Slurm, missing
from harness import Mpi, known_mpis
from preempting import TO_THE_SHELL, Training, straight
from states import state

LONGEST_S = 0.5  # from where a start begins to train to the warning


def play(slurm: Slurm, mpi: Mpi, options: argparse.Namespace, folder: Path) -> list[str]:
    """Warn a job as often as asked, and give what did not hold."""
    arguments = ("--epochs", str(options.epochs), "--backend", "mpi4py")
    draw, began = random.Random(options.seed), time.monotonic()
    job = Training.submit(slurm, options.job, folder, mpi.environment(), *arguments)
    for start in range(options.rounds):
        job.warn(start, after_s=draw.uniform(0, LONGEST_S))
        print(f"warned {start + 1} times, {time.monotonic() - began:.0f} s", flush=True)
    end = job.end()
    print("ended at", "; ".join(job.warned))
    expected = JobEnd("COMPLETED", status=0, signal=0, restarts=options.rounds)
    problems = [] if end == expected else [f"{end} instead of {expected}", job.output]
    same = state(job.checkpoint) == state(straight(mpi, folder, *arguments))
    return problems + ([] if same else ["the checkpoint differs from that of an uninterrupted run"])


def main() -> int:
    """Play; TERM ends it like an interrupt."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--job", choices=TO_THE_SHELL, default="train")
    parser.add_argument("--epochs", type=int, default=100, help="so many that none of the rounds is the last one")
    parser.add_argument("--mpi", choices=[mpi.name for mpi in known_mpis()], default=known_mpis()[0].name)
    options = parser.parse_args()
    if reason := clusters.unavailable() or missing():
        sys.exit(reason)
    (mpi,) = (mpi for mpi in known_mpis() if mpi.name == options.mpi)
    with tempfile.TemporaryDirectory() as folder, Cluster(hosts=2) as cluster:
        slurm = Slurm(cluster=cluster)
        slurm.start()
        problems = play(slurm, mpi, options, Path(folder))
    print("\n".join(problems) or f"equal to the bit after {options.rounds} warnings")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
