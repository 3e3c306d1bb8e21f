"""The benchmark finds what is sick in a cluster of hosts on this machine: links, late ranks, and what got slower.

python tests/stress/sick.py --rounds 10 [--situations link late slower]: each round plays each situation once on four
hosts behind links of 100 Mbit/s. ``link``: one host's link has a quarter of the rate, and is the one that the heat map
flags. ``late``: one rank comes 20 ms late to everything, and is a straggler, while no rate is flagged. ``slower``: a
second run compares well with the first, one whose calls take 20 % longer does not. Needs what tests/cluster needs.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # for `bench`

from bench.cluster import state
from bench.cluster.cluster import Cluster
from harness import ROOT, Job, Mpi, Result, known_mpis

RATE, QUARTER = "100mbit", "25mbit"
MESSAGE = "512K"  # passes in less than the 50 ms that a link queues, so that the healthy ones lose no packet
LATE_S, REGRESSION = 0.02, 0.2
JOB_S = 200.0
PROGRAM = ROOT / "tests" / "programs" / "delayed_bench.py"


class Bench:
    """The benchmark on a cluster, with a rank a host.

    Args:
        cluster: The hosts.
        mpi: What starts the ranks.
        rank: The one that may be delayed.
    """

    def __init__(self, cluster: Cluster, mpi: Mpi, rank: int) -> None:
        self.cluster, self._mpi, self.rank = cluster, mpi, rank
        self.host = cluster.names[rank]

    def run(self, *arguments: str, seconds: float = 0.0, where: str = "call") -> Result:
        """Run it to its end."""
        argv = [self._mpi.python, str(PROGRAM), str(self.rank), str(seconds), where, "--backend", "mpi4py", *arguments]
        env = {**self._mpi.environment(), "PYTHONPATH": str(ROOT)}
        with Job(self.cluster.command(self._mpi, argv, self.cluster.names), env=env) as job:
            return job.wait(JOB_S)


def content_of(file: Path) -> Mapping[str, Any]:
    """Give what a run has written."""
    found: Mapping[str, Any] = json.loads(file.read_text())
    return found


def flagged(content: Mapping[str, Any]) -> list[str]:
    """Give what the heat map flags for its rate, the slowest first."""
    (matrix,) = content["pairs"]
    return [one["name"] for one in matrix["slow"] if one["measure"] == "bandwidth"]


def play_link(bench: Bench, folder: Path) -> list[str]:
    """See that a slow link is the one that is flagged."""
    bench.cluster.shape(bench.host, QUARTER)
    result = bench.run("--pairs", MESSAGE, "-n", "9", "--report", str(folder))
    if result.returncode:
        return [str(result)]
    hosts = [name for name in flagged(content_of(folder / "results.json")) if name.startswith("host ")]
    wanted = f"host {bench.host}, sending to and receiving from other hosts"
    problems = [f"flagged are {hosts}"] * (hosts != [wanted])
    page = (folder / "index.html").read_text()
    return problems + ["the page does not say so"] * (f"Slow over mpi4py: {wanted}" not in page)


def play_late(bench: Bench, folder: Path) -> list[str]:
    """See that a late rank is a straggler, by its delay, and that no rate is flagged."""
    options = ("--measure", "stability", "-e", "64K", "--pairs", MESSAGE, "-n", "9", "--budget", "60")
    result = bench.run(*options, "--report", str(folder), seconds=LATE_S, where="fill")
    if result.returncode:
        return [str(result)]
    content = content_of(folder / "results.json")
    (found,) = content["stability"]
    late = [(one["name"], one["late_us"] / 1e6) for one in found["stragglers"]]
    right = [name for name, seconds in late if bench.host in name and 0.5 * LATE_S < seconds < 1.5 * LATE_S]
    problems = [f"stragglers are {late}"] * (len(late) != 1 or not right)
    return problems + [f"flagged are {flagged(content)}"] * bool(flagged(content))


def play_slower(bench: Bench, folder: Path) -> list[str]:
    """See that a comparison fails where calls take longer, and only there."""
    first, again = folder / "first.json", ("-b", "1M", "-e", "1M", "-n", "9", "--compare", str(folder / "first.json"))
    result = bench.run("-b", "1M", "-e", "1M", "-n", "9", "--json", str(first))
    if result.returncode:
        return [str(result)]
    medians = [one["time_us_median"] / 1e6 for one in content_of(first)["results"]]
    problems = []
    if result := failing(bench.run(*again), 0):
        problems.append(f"a second run does not compare well: {result}")
    if result := failing(bench.run(*again, seconds=REGRESSION * max(medians)), 1):
        problems.append(f"a slower run compares well: {result}")
    return problems


def failing(result: Result, status: int) -> Result | None:
    """Give a result that has not this status."""
    return None if result.returncode == status else result


SITUATIONS: Mapping[str, Callable[[Bench, Path], list[str]]] = {
    "link": play_link,
    "late": play_late,
    "slower": play_slower,
}


def play(name: str, seed: int, mpi: Mpi) -> list[str]:
    """Play a situation on a cluster of its own, and give what did not hold."""
    rank = random.Random(f"{name} {seed}").randrange(4)
    with Cluster(hosts=4, rate=RATE) as cluster, tempfile.TemporaryDirectory() as folder:
        problems = SITUATIONS[name](Bench(cluster, mpi, rank), Path(folder))
    print(f"seed {seed} {name}, {cluster.names[rank]}: {'; '.join(problems) or 'ok'}", flush=True)
    return problems


def main(argv: Sequence[str]) -> int:
    """Play as many rounds as asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    parser.add_argument("--situations", nargs="+", choices=SITUATIONS, default=list(SITUATIONS))
    options = parser.parse_args(argv)
    if lack := state.unavailable():
        sys.exit(lack)
    mpi = known_mpis()[0]
    if mpi.missing:
        sys.exit(str(mpi.missing))
    rounds = range(options.seed, options.seed + options.rounds)
    failed = {name: sum(bool(play(name, seed, mpi)) for seed in rounds) for name in options.situations}
    print(*(f"{name}: {options.rounds - bad} of {options.rounds} held" for name, bad in failed.items()), sep="\n")
    return 1 if any(failed.values()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
