"""Train while ranks are killed: it goes on at once, with the losses of a run on those that are left.

python tests/stress/training.py --rounds 3 --hosts 4 --ranks 8 3:2:start 3:5:start: these ranks are killed at these
steps (tests/programs/survivors.py says how), and the time from the last death of a step to that step's end is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness import ROOT, Result
from stress import tolerant

PROGRAM = ROOT / "tests" / "programs" / "survivors.py"


def recoveries(result: Result) -> list[str]:
    """Give, for each step in which ranks died, the milliseconds from the last death to its end on all that are left."""
    died: dict[int, float] = {}
    ended: dict[int, float] = {}
    for times, pattern in ((died, r"dies at step (\d+), (\S+)"), (ended, r"step (\d+) ended, (\S+)")):
        for step, second in re.findall(pattern, result.stdout):
            times[int(step)] = max(times.get(int(step), 0.0), float(second))
    return [f"step {step}: {1000 * (ended[step] - died[step]):.0f} ms" for step in sorted(died) if step in ended]


def main() -> int:
    """Play the rounds."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("deaths", nargs="+", metavar="STEP:RANK:MOMENT")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--hosts", type=int, default=1, help="of a cluster on this machine")
    parser.add_argument("--backend", default="hierarchical(mpi4py, gloo)")
    options = parser.parse_args()
    right = 0
    with tolerant.hosts(options.hosts) as cluster:
        for _ in range(options.rounds):
            result = tolerant.run(cluster, options.ranks, [str(PROGRAM), options.backend, *options.deaths])
            held = tolerant.held(result, options.ranks - len(options.deaths))
            right += held
            print(f"held; from death to step's end: {', '.join(recoveries(result))}" if held else result, flush=True)
    print(f"{right} of {options.rounds} rounds held")
    return 0 if right == options.rounds else 1


if __name__ == "__main__":
    sys.exit(main())
