"""The command line: ``python -m hpccomm.trace FILE --matrix``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hpccomm.bench.text import field, note
from hpccomm.errors import HpccommError
from hpccomm.timeline.chrome import Summary, load
from hpccomm.topology.grouping import count
from hpccomm.trace import matrix
from hpccomm.units import format_us

_PROGRAM = "python -m hpccomm.trace"
_DESCRIPTION = """
Say what is in a trace: run any program with HPCCOMM_TRACE=FILE (or a folder), or the benchmark with --trace FILE. The
file itself opens in ui.perfetto.dev or chrome://tracing: a process for each rank, in it a line for the operations of
each group and for every part of its backend, all by rank 0's clock.
"""


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Show a trace; gives the exit status: 0, or 2 for a file that is none.

    Args:
        argv: Arguments after ``python -m hpccomm.trace``.
        environ: The environment.
    """
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("file", type=Path, metavar="FILE", help="the trace")
    parser.add_argument("--matrix", action="store_true", help="show how many bytes each rank sent to each other one")
    options = parser.parse_args(argv)
    try:
        trace = load(options.file)
    except HpccommError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    print(*about(trace), sep="\n")
    if options.matrix:
        colours = sys.stdout.isatty() and not environ.get("NO_COLOR")
        print("", *matrix.lines(trace, colours=colours), sep="\n")
    return 0


def about(trace: Summary) -> Iterator[str]:
    """Say what a trace holds, and how well the clocks are known."""
    hosts = len(set(trace.hosts))
    yield from field("ranks", f"{count(len(trace.hosts), 'rank')} on {count(hosts, 'host')}")
    yield from field("spans", f"{sum(trace.spans)}")
    if any(trace.left_out):
        yield from note(f"INCOMPLETE: {sum(trace.left_out)} later spans were left out; the bytes are those of all")
    if readings := [one for of_rank in trace.clocks for one in of_rank]:
        ahead = max(abs(one.ahead_s) for one in readings) * 1e6
        doubt = max(one.round_trip_s for one in readings) / 2 * 1e6
        yield from field("clocks", f"up to {format_us(ahead)} us apart, corrected to within {format_us(doubt)} us")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
