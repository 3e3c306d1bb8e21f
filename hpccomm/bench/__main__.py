"""``python -m hpccomm.bench``: options first, then a word to the user, and only then torch."""

from __future__ import annotations

import io
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import NoReturn

from hpccomm.bench import compare, compare_report, interrupt
from hpccomm.bench.arguments import parse
from hpccomm.bench.options import Options
from hpccomm.bench.screen import Progress, Screen
from hpccomm.bench.terminal import is_terminal
from hpccomm.errors import LaunchError, OptionError
from hpccomm.launch import Launch, detect
from hpccomm.topology.grouping import count
from hpccomm.watch.launched import launched


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the benchmark with these options and give the exit status; the same on all ranks."""
    try:
        launch = detect(environ)
    except LaunchError as error:
        print(f"python -m hpccomm.bench: {error}", file=sys.stderr)
        return 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names and errors may hold any character
    speaks = launch.hint_rank == 0
    try:
        with redirect_stdout(sys.stdout if speaks else io.StringIO()):
            options = parse(argv)
        if len(options.compare) == 2:
            return _compare(options, _screen(options, launch))
        if options.sources:
            return _report(options, _screen(options, launch))
    except OptionError as error:
        return _refuse(error, speaks)
    return run(options, launch, command_line=shlex.join(("python", "-m", "hpccomm.bench", *argv)))


def _refuse(error: OptionError, speaks: bool) -> int:
    if speaks:
        print(f"python -m hpccomm.bench: {error}", file=sys.stderr, flush=True)
    else:
        time.sleep(interrupt.QUIET_S)
    return 2


def _screen(options: Options, launch: Launch) -> Screen:
    has_launcher = launch.uses_mpi and launch.size is not None
    speaks = launch.hint_rank == 0
    shows = options.progress == "on" or (options.progress == "auto" and is_terminal(2, has_launcher=has_launcher))
    bold = not os.environ.get("NO_COLOR") and is_terminal(1, has_launcher=has_launcher)
    return Screen(Progress(enabled=speaks and shows), speaks=speaks, bold=bold)


def _compare(options: Options, screen: Screen) -> int:
    """Compare two files; only the rank that speaks has an opinion, so that no other one ends before it."""
    if not screen.speaks:
        return 0
    old, new = map(compare.load, options.compare)
    compare.refuse_strangers(old, new.name, new.results)
    found = compare.compare(old, new, options.tolerance)
    screen.say(compare_report.lines(found))
    return int(found.fails)


def _report(options: Options, screen: Screen) -> int:
    """Make the report of files, likewise."""
    if screen.speaks:
        from hpccomm.bench import page

        assert options.report is not None
        screen.say(page.write(options.report, [compare.load(path, option="--from") for path in options.sources]))
    return 0


def run(options: Options, launch: Launch, *, command_line: str) -> int:
    """Measure, and give the exit status; collective."""
    screen = _screen(options, launch)
    interrupt.watch(screen)
    launched.watch(launch.launcher)
    screen.progress.show(f"starting {count(launch.size or 1, 'rank')} ...")
    from hpccomm.bench import session, sweep

    if options.sweep:
        status = sweep.run(options, launch, screen)
    else:
        status = session.run(options, launch, screen, command_line=command_line)
    screen.progress.clear()
    return status


def leave(status: int) -> NoReturn:
    """End this process without taking the interpreter down, which costs a rank with torch most of a second."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized():
        from hpccomm.bootstrap.mpi import wind_up

        wind_up()
        if not mpi.Is_finalized():
            mpi.Finalize()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(status)


if __name__ == "__main__":
    leave(main(sys.argv[1:], os.environ))
