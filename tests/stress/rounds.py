"""What the stress programs share: jobs of work.py, striking a rank, watching the job end, and the closing table.

Everything of a round is drawn from its seed, so that a round is played again by `--rounds 1 --seed N`.
"""

from __future__ import annotations

import argparse
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness import Job, Mpi, known_mpis
from waiting import POLL_S, comes_true

RANKS = 4
BACKENDS = ("mpi4py", "hierarchical(mpi4py, gloo)", "failover(mpi4py, gloo)")
MOMENTS = ("init", "barrier", "small", "large")
WORK = Path(__file__).with_name("work.py")
START_S = 90.0  # for a job's start on a machine that does much else

_ACCUSED = re.compile(
    r"\brank (\d+) on \S+ (?:is stopped|has ended|does not answer|(?=\(process \d+\)[^\n]* without a word))"
)
_ONE_TAKES = re.compile(r"begins, one takes ([\d.]+) s")


@dataclass
class Outcome:
    """What came of a round.

    Attributes:
        row: Its row in the table.
        what: What was done, for the reader.
        named_s: Seconds until the rank was named, or None.
        ended_s: Seconds until no process was left, or None.
        problems: What did not hold.
        note: What the reader should know besides.
        output: The job's.
    """

    row: str
    what: str
    named_s: float | None = None
    ended_s: float | None = None
    problems: list[str] = field(default_factory=list)
    note: str = ""
    output: str = ""

    def check(self, holds: object, problem: str) -> None:
        """Note a problem where something does not hold."""
        if not holds:
            self.problems.append(problem)

    def __str__(self) -> str:
        times = f"named {_seconds(self.named_s)}, ended {_seconds(self.ended_s)}"
        return f"{self.row}: {self.what}: {times}: {'; '.join(self.problems) or 'ok'}{self.note}"


@dataclass
class Round:
    """What a round may draw from.

    Attributes:
        draw: The round's own generator.
        mpi: The MPI.
        deadline_s: Of the start and of every operation.
        moments: When to strike.
        folder: For what ranks write.
    """

    draw: random.Random
    mpi: Mpi
    deadline_s: float
    moments: Sequence[str]
    folder: str

    def job(self, moment: str, backend: str, *, seconds: float, end: Sequence[float] = ()) -> Job:
        """Start four ranks on two virtual nodes that repeat what a moment names."""
        argv = [self.mpi.python, str(WORK), "small" if moment == "init" else moment, "--backend", backend]
        argv += ["--timeout", str(self.deadline_s), "--seconds", str(seconds)]
        argv += ["--end", *map(str, end)] if end else []
        ours = {"HPCCOMM_RANKS_PER_NODE": "2", "HPCCOMM_QUIET_S": "1", "HPCCOMM_FLIGHT_DIR": self.folder}
        return Job(self.mpi.command(RANKS, argv), env=self.mpi.environment() | ours)


def process_of(job: Job, rank: int) -> int | None:
    """Wait until the launcher has started a rank, and give its process."""
    comes_true(lambda: rank in job.ranks() or job.process.poll() is not None, START_S)
    return job.ranks().get(rank)


def begun(job: Job) -> bool:
    """Wait until all ranks repeat their operation, and tell whether they came so far."""
    comes_true(lambda: job.stdout.count(" begins") == RANKS or job.process.poll() is not None, START_S)
    return job.stdout.count(" begins") == RANKS


def one_takes(job: Job) -> float:
    """Give the seconds of one operation, or 0 where none was made."""
    return max(map(float, _ONE_TAKES.findall(job.stdout)), default=0.0)


def named(job: Job, rank: int, process: int) -> bool:
    """Tell whether somebody names a rank as the one that fails, or, as Hydra does, its process."""
    by_us = rf"(?<!\[)\brank {rank}\b(?! and \d| waited| has waited| pid |/|:)"
    by_mpirun = rf"Process name: \[\S+@\d+,{rank}\]"
    return re.search(f"{by_us}|{by_mpirun}", job.stderr) is not None or f"PID {process} RUNNING AT" in job.stdout


def watch(job: Job, outcome: Outcome, rank: int, process: int, *, limit_s: float) -> None:
    """Watch a job until none of its processes is left, counted from now or from the other ranks' start."""
    others = [f"rank {other} pid " for other in range(RANKS) if other != rank]
    start = struck = time.monotonic()
    starting = True
    while job.pids() and (now := time.monotonic()) < start + limit_s:
        job.process.poll()
        if starting and now < struck + START_S:
            starting = not all(other in job.stdout for other in others)
            start = now
        if outcome.named_s is None and named(job, rank, process):
            outcome.named_s = time.monotonic() - start
        time.sleep(POLL_S)
    if not job.pids():
        outcome.ended_s = time.monotonic() - start
        if outcome.named_s is None and named(job, rank, process):
            outcome.named_s = outcome.ended_s


def conclude(job: Job, outcome: Outcome, rank: int) -> int:
    """Take the job down and give its status; note what it left behind and whom it accused wrongly."""
    running = outcome.ended_s is None
    result = job.wait(0.1)
    outcome.output = str(result)
    outcome.check(not running, "hangs")
    outcome.check(running or not result.leftovers, f"left {result.leftovers}")
    wrong = {int(found) for found in _ACCUSED.findall(result.stderr)} - {rank}
    outcome.check(not wrong, f"accuses {sorted(wrong)} too")
    return result.returncode


def parser(about: str, *, moments: Sequence[str] = MOMENTS) -> argparse.ArgumentParser:
    """Make the options that all stress programs have."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--rounds", type=int, default=10)
    made.add_argument("--seed", type=int, default=1, help="of the first round; the next ones count up")
    made.add_argument("--mpi", choices=[mpi.name for mpi in known_mpis()], help="one MPI instead of each in turn")
    made.add_argument("--deadline", type=float, default=6.0, help="seconds of the start and of every operation")
    made.add_argument("--moments", nargs="+", choices=moments, default=list(moments))
    made.add_argument("--logs", type=Path, help="folder for the output of the rounds that fail")
    return made


def play_all(options: argparse.Namespace, play: Callable[[Round], Outcome]) -> int:
    """Play the rounds, print a line each and the table, and give the exit status; TERM ends it like an interrupt."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    mpis = [mpi for mpi in known_mpis() if options.mpi in (None, mpi.name)]
    if absent := [mpi.missing for mpi in mpis if mpi.missing]:
        sys.exit("\n".join(map(str, absent)))
    failed, outcomes = [], []
    with tempfile.TemporaryDirectory() as folder, suppress(KeyboardInterrupt):
        for seed in range(options.seed, options.seed + options.rounds):
            mpi = mpis[seed % len(mpis)]
            outcome = play(Round(random.Random(seed), mpi, options.deadline, options.moments, folder))
            outcomes.append(outcome)
            print(f"seed {seed} {outcome}", flush=True)
            if outcome.problems:
                again = f"--rounds 1 --seed {seed} --mpi {mpi.name} --deadline {options.deadline:g}"
                failed.append(f"{again} --moments {' '.join(options.moments)}: {outcome}")
                _keep(options.logs, f"{Path(sys.argv[0]).stem}-{mpi.name}-{seed}.log", outcome.output)
    print(table(outcomes))
    print("\n".join(["failed:", *failed]) if failed else "all rounds held")
    return 1 if failed or len(outcomes) < options.rounds else 0


def table(outcomes: Sequence[Outcome]) -> str:
    """Lay out counts and times, a line a row."""
    head = f"{'':44} {'rounds':>6} {'failed':>6} {'named':>6} {'median':>8} {'median end':>11} {'longest end':>12}"
    rows = {outcome.row: [one for one in outcomes if one.row == outcome.row] for outcome in outcomes}
    lines = [_line(row, rows[row]) for row in sorted(rows)]
    return "\n".join([head, *lines, _line("all", outcomes)])


def _line(title: str, of: Sequence[Outcome]) -> str:
    named_s = [one.named_s for one in of if one.named_s is not None]
    ended_s = [one.ended_s for one in of if one.ended_s is not None]
    failed = sum(bool(one.problems) for one in of)
    name = _seconds(statistics.median(named_s) if named_s else None)
    end, longest = (_seconds(pick(ended_s) if ended_s else None) for pick in (statistics.median, max))
    return f"{title:44} {len(of):6} {failed:6} {len(named_s):6} {name:>8} {end:>11} {longest:>12}"


def _seconds(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def _keep(folder: Path | None, name: str, text: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def strike(process: int, act: Callable[[int], None]) -> bool:
    """Do something to a process; tell whether it was still there."""
    with suppress(ProcessLookupError):
        act(process)
        return True
    return False
