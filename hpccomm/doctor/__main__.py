"""The command line: ``python -m hpccomm.doctor --flight DIR``; one option a check."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hpccomm.doctor import flight, flight_records, flight_report
from hpccomm.errors import HpccommError

_PROGRAM = "python -m hpccomm.doctor"
_WIDTH = 120  # of text that goes to no terminal
_EPILOG = "Exit status: 0 if nothing is wrong, 1 if something is, 2 if it could not be checked."


def main(argv: Sequence[str]) -> int:
    """Run the check that the arguments ask for.

    Args:
        argv: Arguments after ``python -m hpccomm.doctor``.

    Returns:
        Exit status: 0 if nothing is wrong, 1 if something is, 2 for arguments or input that do not fit.
    """
    parser = _parser()
    options = parser.parse_args(argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # names may hold any character
    try:
        if options.flight is not None:
            return _flight(options.flight, _console())
    except HpccommError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    parser.print_usage(sys.stderr)
    return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description="Say what is wrong.", epilog=_EPILOG)
    parser.add_argument(
        "--flight",
        type=Path,
        metavar="DIR",
        help="merge the ranks' flight records DIR/rank<N>.json and say where the ranks diverge",
    )
    return parser


def _console() -> Console:
    """Write to standard output, as plain text of a fixed width where that is no terminal."""
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else _WIDTH
    return Console(force_terminal=is_terminal, width=width, highlight=False, markup=False, emoji=False)


def _flight(folder: Path, console: Console) -> int:
    found = flight.merge(flight_records.load(folder))
    findings = [flight.judge(group) for group in found.groups]
    console.print(flight_report.report(found, findings))
    return int(bool(found.missing) or any(finding.diverges for finding in findings))


if __name__ == "__main__":
    try:
        status = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 1
    sys.exit(status)
