"""Stop ranks with SIGSTOP while they start or communicate: the missing rank is named and the job ends in time.

python tests/stress/stops.py --rounds 20; a fifth of the ranks go on before the deadline, and all must end well.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stress.rounds import (
    BACKENDS,
    MOMENTS,
    RANKS,
    Outcome,
    Round,
    begun,
    conclude,
    one_takes,
    parser,
    play_all,
    process_of,
    strike,
    watch,
)

PAST_DEADLINE_S = 1.5
GIVE_UP_S = 15.0  # after which a job that has not ended counts as hanging
INIT_S = 4.0


def play(one: Round) -> Outcome:
    """Stop a rank at a random moment."""
    draw = one.draw
    moment, backend, rank = draw.choice(one.moments), draw.choice(BACKENDS), draw.randrange(RANKS)
    goes_on = draw.random() < 0.25
    delay = draw.uniform(0, INIT_S if moment == "init" else 1.0)
    pause = draw.uniform(0.5, one.deadline_s - 1.5)
    kind = "pause" if goes_on else "stop"
    what = f"{kind} rank {rank} in {backend} after {delay:.2f} s" + (f" for {pause:.2f} s" if goes_on else "")
    outcome = Outcome(f"{one.mpi.name} {kind} in {moment}", what)
    with one.job(moment, backend, seconds=6.0) as job:
        process = process_of(job, rank)
        ready = process is not None and (moment == "init" or begun(job))
        time.sleep(delay)
        if process is None or not ready or not strike(process, lambda pid: os.kill(pid, signal.SIGSTOP)):
            outcome.problems.append("ended before it was struck")
            outcome.output = str(job.wait(1))
            return outcome
        if goes_on:
            time.sleep(pause)
            os.kill(process, signal.SIGCONT)
        watch(job, outcome, rank, process, limit_s=one.deadline_s + GIVE_UP_S)
        took = one_takes(job)
        status = conclude(job, outcome, rank)
        (judge_pause if goes_on else judge_stop)(outcome, status, one.deadline_s, 2 * took)
    return outcome


def judge_stop(outcome: Outcome, status: int, deadline_s: float, begin_s: float) -> None:
    """See that the rank was named before the deadline, and that the job failed soon after it."""
    outcome.check(status != 0, "status 0")
    outcome.check(outcome.named_s is not None and outcome.named_s <= deadline_s + begin_s, "not named in time")
    limit = deadline_s + PAST_DEADLINE_S + begin_s
    outcome.check(outcome.ended_s is None or outcome.ended_s <= limit, f"ended after more than {limit:.1f} s")


def judge_pause(outcome: Outcome, status: int, *_: float) -> None:
    """See that all ranks ended with right results."""
    outcome.check(status == 0, f"status {status}")
    outcome.check(outcome.output.count(" is right") == RANKS, "not all right")


def main() -> int:
    """Play as many rounds as asked."""
    return play_all(parser(str(__doc__).splitlines()[0], moments=MOMENTS).parse_args(), play)


if __name__ == "__main__":
    sys.exit(main())
