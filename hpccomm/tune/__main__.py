"""``mpirun -np 8 python -m hpccomm.tune``: measure on these ranks, and write the table for HPCCOMM_TUNING."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from hpccomm.bench.__main__ import leave
from hpccomm.bench.__main__ import main as measure
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.interrupt import QUIET_S
from hpccomm.errors import HpccommError, LaunchError, OptionError
from hpccomm.launch import detect, launcher_of
from hpccomm.watch.launched import launched

_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "sendrecv")


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Measure and write; the exit status is the benchmark's, and no table is written unless it is 0."""
    own, options = _parser().parse_known_args(argv)
    if own.explain:
        return _ended(lambda: _explain(own.table, options), environ)
    if not any(word.partition("=")[0] == "--collective" for word in options):
        options += ["--collective", *_COLLECTIVES]
    # Beside the table, so that a folder that cannot be written to is refused before anything is measured.
    results = own.table.with_name(f".{own.table.name}.results")
    try:
        status = measure([*options, "--json", str(results)], environ)
        return status or _ended(lambda: _write(own.table, results), environ)
    finally:
        with suppress(OSError):
            results.unlink()


def _ended(action: Callable[[], None], environ: Mapping[str, str]) -> int:
    """Do something that fails on all ranks alike, and give the exit status; one rank says what is wrong."""
    try:
        action()
    except HpccommError as error:
        if isinstance(error, LaunchError) or detect(environ).hint_rank == 0:
            print(f"python -m hpccomm.tune: {error}", file=sys.stderr, flush=True)
        else:
            time.sleep(QUIET_S)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m hpccomm.tune",
        description="Measure which backend is the fastest for which collective and size, on ranks that mpirun, srun "
        "or torchrun started. All options of python -m hpccomm.bench but --json are taken too: --backend names the "
        f"candidates, --budget the seconds; the collectives are {', '.join(_COLLECTIVES)}, unless others are given.",
        epilog="Then export HPCCOMM_TUNING=FILE for programs on the same set-up that use the backend auto.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--table", type=Path, default=Path("tuning.json"), metavar="FILE", help="tuning.json by default"
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="measure nothing: say by the table of these ranks what to take for DDP, FSDP, TP and PP, and why",
    )
    return parser


def _explain(table: Path, options: Sequence[str]) -> None:
    """Say on rank 0 what a table of this set-up means for training; collective.

    Raises:
        HpccommError: On all ranks: the table cannot be read, has no times, or is of another set-up, or there are
            options that explaining does not take.
    """
    if options:
        raise OptionError(
            f"explain {table}",
            found=f"{' '.join(options)} beside --explain, which measures nothing",
            remedy="leave it out; --table FILE names another table",
            everywhere=True,
        )
    launched.watch(launcher_of(os.environ))
    import hpccomm
    from hpccomm.backends.tuned import setup_of
    from hpccomm.bench.text import field
    from hpccomm.exchange import together
    from hpccomm.tune.explain import RULE, explain
    from hpccomm.tuning import load

    with hpccomm.init("auto") as world:
        setup = setup_of(world.exchange, world.topology, world.device)

        def show() -> None:
            if world.topology.rank:
                return
            tuning = load(table)
            if differences := tuning.setup.differences(setup):
                raise OptionError(
                    f"explain {table}",
                    found=f"it is of {', '.join(differences)}",
                    remedy="start as it was made, or make one here: python -m hpccomm.tune",
                )
            print(*field("ranks", str(world.topology)), *field("size", RULE), sep="\n")
            for name, advice in explain(tuning).items():
                print(*field(name, advice), sep="\n")

        together(world.exchange, show)


def _write(table: Path, results: Path) -> None:
    """Write the table on rank 0; collective.

    Raises:
        HpccommError: On all ranks: nothing was measured, or the file cannot be written.
    """
    launched.watch(launcher_of(os.environ))
    import hpccomm
    from hpccomm.backends.tuned import setup_of
    from hpccomm.exchange import together
    from hpccomm.tune.fastest import choices, lines, measured
    from hpccomm.tuning import Tuning
    from hpccomm.whole import write_whole

    with hpccomm.init("auto") as world:
        setup = setup_of(world.exchange, world.topology, world.device)

        ranks = world.topology.world_size

        def write() -> None:
            if world.topology.rank == 0:
                rows = json.loads(results.read_text())["results"]
                times = measured(row for row in rows if row["collective"] in COLLECTIVES and row["ranks"] == ranks)
                found = choices(times)
                write_whole(table, Tuning(setup, found, times).text())
                print(*lines(found), f"written to {table}; export HPCCOMM_TUNING={table.absolute()}", sep="\n")

        together(world.exchange, write)


if __name__ == "__main__":
    leave(main(sys.argv[1:], os.environ))
