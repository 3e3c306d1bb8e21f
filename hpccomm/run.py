"""Run a torchrun-style script under mpirun or srun: ``mpirun -np 4 python -m hpccomm.run script.py arguments…``.

Each rank gets torchrun's variables from MPI and a store that rank 0 serves, then runs the script unchanged. An error
or a non-zero exit on one rank ends all of them; at the end the groups that the script left are destroyed.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from hpccomm.launch import launcher_of
from hpccomm.watch.launched import launched


def main(argv: Sequence[str] | None = None) -> None:
    """Connect the ranks and run the program; its exit status becomes the process's.

    Args:
        argv: Arguments after ``python -m hpccomm.run``; None takes the process's own.

    Raises:
        HpccommError: The ranks cannot be connected; the same on all ranks.
    """
    options = _parse(argv)
    launched.watch(launcher_of(os.environ))
    # After that, as it imports torch
    from hpccomm.bootstrap import environment, plugin
    from hpccomm.bootstrap.abort import guard
    from hpccomm.bootstrap.boot import boot

    booted = boot(os.environ, timeout_s=options.timeout)
    plugin.make_groups_from(booted)
    plugin.register()
    saved = environment.export(booted, agent=True)
    try:
        _run(options)
    except SystemExit as error:
        if error.code:
            guard.exit(error.code)
    booted.barrier()
    plugin.destroy_groups()
    environment.restore(saved)
    booted.close()


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    rest = (__doc__ or "").partition("\n\n")[2]
    parser = argparse.ArgumentParser(
        prog="mpirun … python -m hpccomm.run",
        usage="%(prog)s [--timeout S] [-m] PROGRAM [ARGUMENT …]",
        description=rest,
    )
    parser.add_argument("--timeout", type=float, default=120.0, metavar="S", help="start-up deadline in seconds (120)")
    parser.add_argument("-m", dest="is_module", action="store_true", help="PROGRAM is a module's name")
    parser.add_argument("program", help="a script's path, or with -m a module's name")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")
    return parser.parse_args(argv)


def _run(options: argparse.Namespace) -> None:
    sys.argv = [options.program, *options.arguments]
    if options.is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(options.program).resolve().parent)
        runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
