"""Kill launchers with SIGKILL at random moments: no rank lives on.

python tests/stress/orphans.py --rounds 20; ranks that were still importing libraries get the time for that too.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from stress.rounds import BACKENDS, MOMENTS, RANKS, Outcome, Round, begun, parser, play_all
from waiting import comes_true

LEFT_S = 5.0
IMPORT_S = 20.0
INIT_S = 6.0


def play(one: Round) -> Outcome:
    """Kill the launcher at a random moment."""
    draw = one.draw
    moment, backend = draw.choice(one.moments), draw.choice(BACKENDS)
    delay = draw.uniform(0, INIT_S if moment == "init" else 1.0)
    outcome = Outcome(f"{one.mpi.name} orphans in {moment}", f"{backend} after {delay:.2f} s")
    with one.job(moment, backend, seconds=60.0) as job:
        if moment != "init":
            begun(job)
        time.sleep(delay)
        job.process.kill()
        killed = time.monotonic()
        job.process.wait()
        importing = job.stdout.count(" starts") < RANKS
        outcome.note = ", killed while libraries were imported" if importing else ""
        comes_true(lambda: not job.pids(), LEFT_S + (IMPORT_S if importing else 0))
        ranks = job.ranks()
        outcome.ended_s = None if job.pids() else time.monotonic() - killed
        result = job.wait(0.1)
        outcome.output = str(result)
        outcome.check(not ranks, f"ranks {sorted(ranks)} live on")
        outcome.check(ranks or outcome.ended_s is not None, f"left {result.leftovers or 'processes that ended later'}")
    return outcome


def main() -> int:
    """Play as many rounds as asked."""
    return play_all(parser(str(__doc__).splitlines()[0], moments=MOMENTS).parse_args(), play)


if __name__ == "__main__":
    sys.exit(main())
