"""The command line: ``python -m hpccomm.doctor``, and ``--flight DIR`` for the records of a job that failed."""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from hpccomm.bench.screen import Progress
from hpccomm.bench.terminal import is_terminal
from hpccomm.doctor import flight, flight_records, flight_report
from hpccomm.errors import HpccommError
from hpccomm.output import write
from hpccomm.watch.launched import launched

if TYPE_CHECKING:
    from hpccomm.doctor.examine import Examined

_PROGRAM = "python -m hpccomm.doctor"
_WIDTH, _WIDEST = 80, 100  # of a report on the set-up
_MOST_S = 1e6  # that a timeout may have
_FLIGHT_WIDTH = 120  # of one on flight records that goes to no terminal
_DESCRIPTION = """
Say what is wrong with this set-up: versions, launcher, MPI, network, cores, limits, shared memory, GPUs, Slurm, and
whether the ranks come together and add right. Start it as the program is started (mpirun -np 4 python -m
hpccomm.doctor, srun ..., or alone); rank 0 reports for all, with what differs between hosts marked.
"""
_EPILOG = """
Exit status: 0 if all is well (there may be notes), 1 if there are warnings (it works, but slowly, or not for long), 2
if there are errors, or the arguments do not fit, 130 after Ctrl-C before anything is found. With --flight: 0 if nothing
diverges, 1 if something does, 2 if that could not be found out.
"""


def main(argv: Sequence[str]) -> int:
    """Run the check that the arguments ask for.

    Args:
        argv: Arguments after ``python -m hpccomm.doctor``.

    Returns:
        Exit status: as the help says.
    """
    from hpccomm.doctor.look import start

    is_first = not start(os.environ).rank
    with (
        redirect_stdout(sys.stdout if is_first else io.StringIO()),
        redirect_stderr(sys.stderr if is_first else io.StringIO()),
    ):
        options = _parser().parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may hold any character
    try:
        if options.flight is not None:
            return _flight(options.flight) if is_first else 0
        return _set_up(timeout_s=options.timeout, as_json=options.json)
    except HpccommError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:  # before there is anything to report
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--json", action="store_true", help="write all that was seen and found as JSON")
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="seconds for each thing that the ranks do together (60)",
    )
    parser.add_argument(
        "--flight",
        type=Path,
        metavar="DIR",
        help="merge the ranks' flight records DIR/rank<N>.json and say where the ranks diverge",
    )
    return parser


def _seconds(text: str) -> float:
    with suppress(ValueError):
        if 0 < (seconds := float(text)) < _MOST_S:
            return seconds
    raise argparse.ArgumentTypeError(f"{text!r} instead of seconds above 0 and below {_MOST_S:.0f}")


def _write(text: str, status: int) -> int:
    return write(text, program=_PROGRAM, what="the report ", status=status)


def _console_of(*, is_terminal: bool, width: int | None) -> Console:
    return Console(force_terminal=is_terminal, width=width, highlight=False, markup=False, emoji=False)


def _flight(folder: Path) -> int:
    found = flight.merge(flight_records.load(folder))
    findings = [flight.judge(group) for group in found.groups]
    shows = sys.stdout is not None and sys.stdout.isatty()
    console = _console_of(is_terminal=shows, width=None if shows else _FLIGHT_WIDTH)
    with console.capture() as written:
        console.print(flight_report.report(found, findings))
    return _write(written.get(), int(bool(found.missing) or any(finding.diverges for finding in findings)))


def _set_up(*, timeout_s: float, as_json: bool) -> int:
    from hpccomm.doctor.examine import entries, examine
    from hpccomm.doctor.finding import worst
    from hpccomm.doctor.look import start
    from hpccomm.doctor.once import say_once
    from hpccomm.doctor.report import in_short

    begun = start(os.environ)
    launched.watch(begun.launcher)
    has_launcher = bool(begun.launcher.offers or begun.size > 1)
    progress = Progress(enabled=not begun.rank and is_terminal(2, has_launcher=has_launcher))
    examined = examine(os.environ, timeout_s=timeout_s, progress=progress)
    try:
        if examined.speaks:
            text = json.dumps(entries(examined), indent=1) if as_json else _text(examined, has_launcher=has_launcher)
            return _write(f"{text}\n", int(worst(examined.findings)))
        if not examined.is_heard:
            with suppress(OSError):
                lines = in_short(examined.case, examined.findings, leads_host=examined.leads_host)
                say_once(lines, rank=begun.rank)
        return 0
    finally:
        examined.supervisor.release(speaks=examined.speaks)


def _text(examined: Examined, *, has_launcher: bool) -> str:
    from hpccomm.doctor.report import report

    shows = is_terminal(1, has_launcher=has_launcher)
    width = min(shutil.get_terminal_size((_WIDTH, 0)).columns, _WIDEST) if shows and not has_launcher else _WIDTH
    console = _console_of(is_terminal=shows and not os.environ.get("NO_COLOR"), width=width)
    with console.capture() as written:
        console.print(report(examined.case, examined.findings))
    return "\n".join(line.rstrip() for line in written.get().splitlines())


if __name__ == "__main__":
    # A check that hangs has a thread, which an interpreter that goes down might wait for.
    os._exit(main(sys.argv[1:]))
