"""Kill hosts of a training job on a real Slurm: it goes on inside its allocation, and ends as it should.

python tests/stress/lost_hosts.py --spares 1 (or 0, or --losses 2); needs what tests/cluster needs. With spares for all
hosts that are lost, the job must end with the bits of one that loses none; else with the steps that its ranks make.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`

from bench.cluster.cluster import Cluster
from bench.cluster.slurm import JobEnd, Slurm
from harness import Mpi, known_mpis
from preempting import TO_THE_SHELL, Training
from states import state

LIMIT_S = 60.0  # from a host's loss to training again
ROWS, BATCH = 1437, 32  # of jobs/train.py


def play(slurm: Slurm, mpi: Mpi, options: argparse.Namespace, folder: Path) -> list[str]:
    """Take a job's hosts away, one after the other, and give what did not hold."""
    hosts = slurm.cluster.names
    job = submit(slurm, mpi, options, folder / "loses", spares=options.spares)
    problems = []
    for launch in range(options.losses):
        host = hosts[launch + (not options.script)]
        seconds = job.lose(host, launch)
        print(f"lost {host}: trains again after {seconds:.1f} s, from {job.begun[-1]}", flush=True)
        problems += [f"only after {seconds:.1f} s"] * (seconds > LIMIT_S)
    end = job.end()
    print(*(line for line in job.output.splitlines() if line.startswith(("LOST", "goes on"))), sep="\n")
    if end != JobEnd("COMPLETED", status=0, signal=0, restarts=int(options.script)):
        return [*problems, str(end), job.output]
    results = json.loads(job.checkpoint.with_suffix(".json").read_text())["results"]
    if [one["epoch"] for one in results] != [*range(options.epochs)]:
        problems.append(f"the results are of epochs {[one['epoch'] for one in results]}")
    if steps(job) != expected_steps(job, options):
        problems.append(f"{steps(job)} steps instead of {expected_steps(job, options)}")
    if options.spares + options.script >= options.losses:
        other = submit(slurm, mpi, options, folder / "keeps", spares=0)
        if other.end().state != "COMPLETED":
            return [*problems, "the job to compare with failed", other.output]
        problems += ["other bits than without a loss"] * (state(job.checkpoint) != state(other.checkpoint))
    return problems


def submit(slurm: Slurm, mpi: Mpi, options: argparse.Namespace, folder: Path, *, spares: int) -> Training:
    """Submit a job."""
    folder.mkdir()
    arguments = ("--epochs", str(options.epochs), "--backend", options.backend)
    fields = {"nodes": options.hosts + spares, "ntasks_per_node": options.ranks_per_host, "spares": spares}
    return Training.submit(slurm, options.job, folder, mpi.environment(), *arguments, **fields)


def steps(job: Training) -> int:
    """Give the steps that have made the job's parameters."""
    return int(torch.load(job.checkpoint)["optimizer"]["state"][0]["step"])


def expected_steps(job: Training, options: argparse.Namespace) -> int:
    """Give the steps of all epochs, each on the ranks of the launch that it counts of."""
    first = [epoch for epoch, _ in job.begun]
    launch_of = [max(launch for launch, begun in enumerate(first) if begun <= epoch) for epoch in range(options.epochs)]
    lacking = [max(0, launch - options.spares - options.script) for launch in launch_of]
    ranks = [(options.hosts - hosts) * options.ranks_per_host for hosts in lacking]
    return sum(-(-ROWS // (BATCH * size)) for size in ranks)


def main() -> int:
    """Play; TERM ends it like an interrupt."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--hosts", type=int, default=4, help="that train")
    parser.add_argument("--ranks-per-host", type=int, default=2)
    parser.add_argument("--spares", type=int, default=1)
    parser.add_argument("--losses", type=int, default=1)
    parser.add_argument("--script", action="store_true", help="lose the script's host first: the job is requeued")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--backend", default="mpi4py")
    parser.add_argument("--job", choices=TO_THE_SHELL, default="train")
    parser.add_argument("--mpi", choices=[mpi.name for mpi in known_mpis()], default=known_mpis()[0].name)
    options = parser.parse_args()
    (mpi,) = (mpi for mpi in known_mpis() if mpi.name == options.mpi)
    hosts = options.hosts + options.spares + options.script
    with tempfile.TemporaryDirectory() as folder, Cluster(hosts=hosts) as cluster:
        slurm = Slurm(cluster=cluster)
        slurm.start()
        problems = play(slurm, mpi, options, Path(folder))
    print("\n".join(problems) or "all held")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
