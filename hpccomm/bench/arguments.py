"""The command line, with nccl-tests' letters; free of torch so that errors come at once.

No option is called like one of Open MPI's mpirun, which reads the program's options too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from hpccomm import __version__
from hpccomm.algorithms import ALGORITHMS
from hpccomm.bench import readers
from hpccomm.bench.collectives import COLLECTIVES, IN, OUT
from hpccomm.bench.definitions import EXPLANATION
from hpccomm.bench.options import DTYPES, OPS, Options
from hpccomm.errors import OptionError

_ALL = "all"
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend"}


def parse(argv: Sequence[str]) -> Options:
    """Read the options.

    Raises:
        OptionError: An option that does not exist or does not fit; the same wherever the same `argv` is read.
        SystemExit: After ``--help`` and ``--version``, with status 0.
    """
    given = {name: value for name, value in vars(_parser().parse_args(argv)).items() if value is not None}
    names = given.pop("collectives", list(Options().collectives))
    given["compare"] = tuple(given.get("compare", ()))
    for name in ("backends", "algorithms"):
        given[name] = tuple(dict.fromkeys(given.get(name, ())))
    options = Options(**given, collectives=_collectives(names, given.get("place")))
    fault = _fault(options, given.keys(), names)
    if fault:
        raise _error(fault)
    return replace(options, op=OPS[options.op], dtype=DTYPES[options.dtype])


def _collectives(names: Sequence[str], place: str | None) -> tuple[str, ...]:
    """Give the collectives that were named; `all` are those that have the place that was asked for."""
    every = [name for name in COLLECTIVES if not _lacks(name, place)]
    return tuple(dict.fromkeys(one for name in names for one in (every if name == _ALL else [name])))


def _lacks(name: str, place: str | None) -> bool:
    """Tell whether a collective with data does not have a place."""
    collective = COLLECTIVES[name]
    return place in (IN, OUT) and collective.has_data and place not in collective.places


def _fault(options: Options, given: Container[str], names: Sequence[str]) -> str | None:
    """Say which options do not go together, if so."""
    asked = [COLLECTIVES[name] for name in options.collectives]
    lacking = [name for name in options.collectives if _lacks(name, options.place)]
    files = [os.path.realpath(path) for path in (options.json, options.csv, *options.compare) if path]
    measures = replace(options, compare=(), tolerance=Options.tolerance) != Options()
    told = ", ".join(names)
    faults = (
        ("op" in given and not any(one.reduces for one in asked),
         f"-o does not fit --collective {told}, which reduces nothing"),
        ("place" in given and not any(one.has_data for one in asked),
         f"--place does not fit --collective {told}, which has no data"),
        (lacking, f"--place {options.place} does not fit --collective {', '.join(lacking)}, which has no such form"),
        (options.min_bytes > options.max_bytes, f"-b {options.min_bytes} is more than -e {options.max_bytes}"),
        (len(options.compare) > 2, f"--compare takes one file or two, not {len(options.compare)}"),
        ("tolerance" in given and not options.compare, "--tolerance without --compare"),
        (len(options.compare) == 2 and measures,
         "--compare with two files measures nothing: only --tolerance goes with it"),
        (len(set(files)) < len(files), "one file is named twice by --json, --csv and --compare"),
    )  # fmt: skip
    return next((text for is_so, text in faults if is_so), None)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m hpccomm.bench",
        description="Measure collectives over several backends side by side, on the ranks that mpirun, srun or "
        "torchrun started.",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for names, described, settings in _arguments():
        parser.add_argument(*names, help=described, **settings)
    parser.add_argument("--version", action="version", version=f"hpccomm {__version__}")
    return parser


def _arguments() -> list[tuple[tuple[str, ...], str, dict[str, Any]]]:
    """Give names, description and argparse's settings of each option; what is not given stays None."""
    size, count, seconds, file = (
        {"type": read, "metavar": metavar}
        for read, metavar in (
            (readers.size, "SIZE"),
            (readers.number(1), "N"),
            (readers.seconds, "SECONDS"),
            (Path, "FILE"),
        )
    )
    return [
        (("--collective",), f"{', '.join(COLLECTIVES)}, or {_ALL}; a table each (all_reduce)",
         {"dest": "collectives", "choices": [*COLLECTIVES, _ALL], "metavar": "NAME", **_SEVERAL}),
        (("-o", "--op"), f"operator of those that reduce: {', '.join(OPS)} (sum)", {"choices": OPS, "metavar": "OP"}),
        (("--place",), "input and output in the same memory or not (the usual one of each collective)",
         {"choices": (IN, OUT, "both")}),
        (("-d", "--datatype"), "of an element, by torch's or NCCL's name (float32)",
         {"dest": "dtype", "choices": DTYPES, "metavar": "TYPE"}),
        (("-b", "--minbytes"), "first size (4)", {"dest": "min_bytes", **size}),
        (("-e", "--maxbytes"), "last size (64M)", {"dest": "max_bytes", **size}),
        (("-f", "--stepfactor"), "from a size to the next (4)",
         {"dest": "step_factor", "type": readers.number(2), "metavar": "N"}),
        (("-n", "--iters"), "repetitions (5 to 50, by the budget)", {"dest": "iterations", **count}),
        (("-w", "--warmup_iters"), "calls before them (2)", count),
        (("-c", "--check"), "compare results with what they must be (1)",
         {"type": readers.switch, "metavar": "{0,1}"}),
        (("--backend",), "backend expressions, or @file with one (what works here)",
         {"dest": "backends", "type": readers.backend, "metavar": "EXPR", **_SEVERAL}),
        (("--algorithm",), f"each over mpi4py and gloo, as far as they work: {', '.join(ALGORITHMS)}",
         {"dest": "algorithms", "choices": ALGORITHMS, "metavar": "NAME", **_SEVERAL}),
        (("--budget",), "for measuring; sizes that would exceed it are left out (30)", {"dest": "budget_s", **seconds}),
        (("--timeout",), "deadline of one operation (20)", {"dest": "timeout_s", **seconds}),
        (("--json",), "write the results to this file, too", file),
        (("--csv",), "write the results to this file, too", file),
        (("--compare",), "compare median times with those of a --json file; two files: without a run",
         {"type": Path, "metavar": "FILE", **_SEVERAL}),
        (("--tolerance",), "how much slower a row may be (10%%)", {"type": readers.percent, "metavar": "PERCENT"}),
        (("--wide",), "show skew and the rate between nodes, too", {"action": "store_true", "default": None}),
        (("--progress",), "show on standard error what goes on (auto: on a terminal)",
         {"choices": ("auto", "on", "off")}),
    ]  # fmt: skip


def _error(found: str) -> OptionError:
    return OptionError(
        "read the options of python -m hpccomm.bench",
        found=found,
        remedy="correct it; --help lists the options",
        everywhere=True,
    )
