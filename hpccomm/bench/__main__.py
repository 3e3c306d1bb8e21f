"""``python -m hpccomm.bench``: options first, then a word to the user, and only then torch."""

from __future__ import annotations

import io
import os
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout

from hpccomm.bench.options import Options, parse
from hpccomm.bench.progress import Progress
from hpccomm.bench.terminal import is_terminal
from hpccomm.errors import LaunchError, OptionError
from hpccomm.launch import Launch, detect

# What rank 0 prints is lost if the launcher sees another rank end first.
_QUIET_S = 2.0


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
    except OptionError as error:
        return _refuse(error, speaks)
    return _run(options, launch, shlex.join(("python", "-m", "hpccomm.bench", *argv)))


def _refuse(error: OptionError, speaks: bool) -> int:
    if speaks:
        print(f"python -m hpccomm.bench: {error}", file=sys.stderr, flush=True)
    else:
        time.sleep(_QUIET_S)
    return 2


def _run(options: Options, launch: Launch, command_line: str) -> int:
    has_launcher = launch.uses_mpi and launch.size is not None
    speaks = launch.hint_rank == 0
    shows = options.progress == "on" or (options.progress == "auto" and is_terminal(2, has_launcher=has_launcher))
    progress = Progress(enabled=speaks and shows)
    progress.show(f"starting {launch.size or 1} rank{'s' * ((launch.size or 1) > 1)} ...")
    from hpccomm.bench.session import run

    bold = not os.environ.get("NO_COLOR") and is_terminal(1, has_launcher=has_launcher)
    status = run(options, launch, progress, command_line=command_line, bold=bold)
    progress.clear()
    return status


if __name__ == "__main__":
    # not sys.exit, which hpccomm takes for one rank's failure and ends the job with
    raise SystemExit(main(sys.argv[1:], os.environ))
