"""Kill ranks, or have them leave without a word, while they start or communicate: the others end too, and say why.

python tests/stress/kills.py --rounds 50 --mpi openmpi
"""

from __future__ import annotations

import os
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stress.rounds import (
    BACKENDS,
    RANKS,
    Outcome,
    Round,
    begun,
    conclude,
    parser,
    play_all,
    process_of,
    strike,
    watch,
)

GIVE_UP_S = 15.0  # after which a job that has not ended counts as hanging
MEDIAN_S = 3.0
INIT_S = 5.0
HYDRA_SAYS = "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"  # of the first process that it has killed itself
_ended: list[float] = []


def play(one: Round) -> Outcome:
    """Kill a rank at a random moment, or have it leave in the middle of its work."""
    draw = one.draw
    moment, backend, rank = draw.choice(one.moments), draw.choice(BACKENDS), draw.randrange(RANKS)
    way = "kill" if moment == "init" else draw.choice(["kill", "kill", "leave with 0", "leave with 3"])
    delay = draw.uniform(0, INIT_S if moment == "init" else 1.0)
    outcome = Outcome(f"{one.mpi.name} {way} in {moment}", f"rank {rank} in {backend} after {delay:.2f} s")
    end = () if way == "kill" else (rank, int(way[-1]), delay)
    with one.job(moment, backend, seconds=20.0, end=end) as job:
        process = process_of(job, rank)
        ready = process is not None and (moment == "init" or begun(job))
        time.sleep(delay)
        if process is None or not ready or not (end or strike(process, lambda pid: os.kill(pid, signal.SIGKILL))):
            outcome.problems.append("ended before it was struck")
            outcome.output = str(job.wait(1))
            return outcome
        watch(job, outcome, rank, process, limit_s=one.deadline_s + GIVE_UP_S)
        status = conclude(job, outcome, rank)
    outcome.check(status != 0, "status 0")
    if outcome.named_s is None and moment == "init" and HYDRA_SAYS in outcome.output:
        outcome.note = ", but Hydra killed all ranks at once and named the process of another one"
    else:
        outcome.check(outcome.named_s is not None, "not named")
    _ended.append(outcome.ended_s or float("inf"))
    return outcome


def main() -> int:
    """Play as many rounds as asked, and see that half of them ended soon."""
    status = play_all(parser(str(__doc__).splitlines()[0]).parse_args(), play)
    if statistics.median(_ended or [0.0]) > MEDIAN_S:
        print(f"half of the rounds took more than {MEDIAN_S:g} s to end")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
