"""``mpirun -np 8 python -m hpccomm.tune``: measure on these ranks, and write the table for HPCCOMM_TUNING."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from hpccomm.bench.__main__ import leave
from hpccomm.bench.__main__ import main as measure
from hpccomm.errors import HpccommError

_COLLECTIVES = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all")


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Measure and write; the exit status is the benchmark's, and no table is written unless it is 0."""
    own, options = _parser().parse_known_args(argv)
    if "--collective" not in options:
        options += ["--collective", *_COLLECTIVES]
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder, "results.json")
        status = measure([*options, "--json", str(results)], environ)
        if status:
            return status
        try:
            _write(own.table, results)
        except HpccommError as error:
            print(f"python -m hpccomm.tune: {error}", file=sys.stderr)
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
    return parser


def _write(table: Path, results: Path) -> None:
    """Write the table on rank 0; collective.

    Raises:
        HpccommError: On all ranks: nothing was measured, or the file cannot be written.
    """
    import hpccomm
    from hpccomm.backends.tuned import setup_of
    from hpccomm.exchange import together
    from hpccomm.tune.fastest import choices, lines
    from hpccomm.tuning import Tuning
    from hpccomm.whole import write_whole

    with hpccomm.init("auto") as world:
        setup = setup_of(world.exchange, world.topology, world.device)

        def write() -> None:
            if world.topology.rank == 0:
                found = choices(json.loads(results.read_text())["results"])
                write_whole(table, Tuning(setup, found).text())
                print(*lines(found), f"written to {table}; export HPCCOMM_TUNING={table.absolute()}", sep="\n")

        together(world.exchange, write)


if __name__ == "__main__":
    leave(main(sys.argv[1:], os.environ))
