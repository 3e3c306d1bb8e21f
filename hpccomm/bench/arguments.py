"""The command line, with nccl-tests' letters; free of torch so that errors come at once.

No option is called like one of Open MPI's mpirun, which reads the program's options too.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from hpccomm import __version__, expression
from hpccomm.algorithms import ALGORITHMS
from hpccomm.bench import measures, suites
from hpccomm.bench.collectives import COLLECTIVES, IN, OUT
from hpccomm.bench.definitions import EXPLANATION
from hpccomm.bench.measures import MEASURES
from hpccomm.bench.models import MODELS
from hpccomm.bench.options import DTYPES, OPS, Options
from hpccomm.bench.settings import settings
from hpccomm.errors import ExpressionError, OptionError
from hpccomm.transport_options import NcclOptions
from hpccomm.units import parse_bytes

_ALL = "all"
_PAIRS_BYTES = 1 << 20
_SEVERAL: dict[str, Any] = {"nargs": "+", "action": "extend"}


def parse(argv: Sequence[str]) -> Options:
    """Read the options.

    Raises:
        OptionError: An option that does not exist or does not fit; the same wherever the same `argv` is read.
        SystemExit: After ``--help`` and ``--version``, with status 0.
    """
    given = _given(argv)
    if "suite" in given:
        given = _given(suites.words(given["suite"])) | given
    names = given.pop("collectives", [] if given.keys() & {"pairs_bytes", "measures"} else list(Options().collectives))
    for name in ("compare", "sources", "sweep"):
        given[name] = tuple(given.get(name, ()))
    if "buckets" in given:
        given["buckets"] = tuple(sorted(set(given["buckets"])))
    for name in ("backends", "algorithms", "measures"):
        given[name] = tuple(dict.fromkeys(given.get(name, ())))
    options = Options(**given, collectives=_collectives(names, given.get("place")))
    settings(options.sweep)
    fault = _fault(options, given.keys(), names) or measures.fault(options, given.keys())
    if fault:
        raise _error(fault)
    return replace(options, op=OPS[options.op], dtype=DTYPES[options.dtype])


def _given(argv: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in vars(_parser().parse_args(argv)).items() if value is not None}


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
    files = [os.path.realpath(path) for path in (options.json, options.csv, options.trace, *options.compare) if path]
    measures = replace(options, compare=(), tolerance=Options.tolerance) != Options()
    reports = replace(options, report=None, sources=()) == Options()
    told, of_tables = ", ".join(names), ("op", "place", "min_busbw_gbps", "csv")
    has_rows = bool(names or options.measures)
    faults = (
        (not has_rows and (options.compare or any(name in given for name in of_tables)),
         "--pairs alone has no table, which -o, --place, --min-busbw, --csv and --compare are for"),
        ("op" in given and not any(one.reduces for one in asked),
         f"-o does not fit --collective {told}, which reduces nothing"),
        ("place" in given and not any(one.has_data for one in asked),
         f"--place does not fit --collective {told}, which has no data"),
        ("min_busbw_gbps" in given and not any(one.has_data for one in asked) and not options.measures,
         f"--min-busbw does not fit --collective {told}, which has no data"),
        (lacking, f"--place {options.place} does not fit --collective {', '.join(lacking)}, which has no such form"),
        (options.min_bytes > options.max_bytes, f"-b {options.min_bytes} is more than -e {options.max_bytes}"),
        (len(options.compare) > 2, f"--compare takes one file or two, not {len(options.compare)}"),
        ("tolerance" in given and not options.compare, "--tolerance without --compare"),
        (options.sweep and any((options.csv, options.trace, options.compare, options.report, options.pairs_bytes,
                                options.measures)),
         "--sweep goes with --json, not with --csv, --trace, --compare, --report, --pairs and --measure"),
        (len(options.compare) == 2 and measures,
         "--compare with two files measures nothing: only --tolerance goes with it"),
        (options.sources and not options.report, "--from without --report"),
        (options.sources and not reports, "--from measures nothing: only --report goes with it"),
        (len(set(files)) < len(files), "one file is named twice by --json, --csv, --trace and --compare"),
    )  # fmt: skip
    return next((text for is_so, text in faults if is_so), None)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _error(message)


def _parser() -> argparse.ArgumentParser:
    """Give the parser; what is not given stays None."""
    parser = _Parser(
        prog="python -m hpccomm.bench",
        description="Measure collectives over several backends side by side, on the ranks that mpirun, srun or "
        "torchrun started.",
        epilog=EXPLANATION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    # fmt: off
    add("--suite", choices=suites.SUITES, metavar="NAME",
        help=f"options by a name, which others beside it replace: {'; '.join(map(': '.join, suites.SUITES.items()))}")
    add("--collective", dest="collectives", choices=[*COLLECTIVES, _ALL], metavar="NAME", **_SEVERAL,
        help=f"{', '.join(COLLECTIVES)}, or {_ALL}; a table each (all_reduce)")
    add("-o", "--op", choices=OPS, metavar="OP", help=f"operator of those that reduce: {', '.join(OPS)} (sum)")
    add("--place", choices=(IN, OUT, "both"),
        help="input and output in the same memory or not (the usual one of each collective)")
    add("-d", "--datatype", dest="dtype", choices=DTYPES, metavar="TYPE",
        help="of an element, by torch's or NCCL's name (float32)")
    add("-b", "--minbytes", dest="min_bytes", type=_size, metavar="SIZE", help="first size (4)")
    add("-e", "--maxbytes", dest="max_bytes", type=_size, metavar="SIZE", help="last size (64M)")
    add("-f", "--stepfactor", dest="step_factor", type=_number(2), metavar="N", help="from a size to the next (4)")
    add("-n", "--iters", dest="iterations", type=_number(1), metavar="N", help="repetitions (5 to 50, by the budget)")
    add("-w", "--warmup_iters", type=_number(1), metavar="N", help="calls before them (2)")
    add("-c", "--check", type=_switch, metavar="{0,1}", help="compare results with what they must be (1)")
    add("--backend", dest="backends", type=_backend, metavar="EXPR", **_SEVERAL,
        help="backend expressions, or @file with one (what works here)")
    add("--algorithm", dest="algorithms", choices=ALGORITHMS, metavar="NAME", **_SEVERAL,
        help=f"each over mpi4py and gloo, as far as they work: {', '.join(ALGORITHMS)}")
    add("--pairs", dest="pairs_bytes", type=_size, nargs="?", const=_PAIRS_BYTES, metavar="SIZE",
        help="latency and bandwidth of every rank with every other, by messages of 8 bytes and of SIZE (1M), over the "
        "backends that are named or the first one; without --collective no tables")
    add("--device", choices=("cpu", "cuda"),
        help="where tensors are: host memory, or each rank's GPU, for which a call ends when the GPU is past it (cpu)")
    add("--sweep", metavar="nccl.NAME=VALUE,VALUE", **_SEVERAL,
        help=f"compare NCCL's settings, a child job each; several: all combinations; {', '.join(NcclOptions.advice())}")
    add("--budget", dest="budget_s", type=_seconds, metavar="SECONDS",
        help="for measuring; sizes that would exceed it are left out (30)")
    add("--timeout", dest="timeout_s", type=_seconds, metavar="SECONDS", help="deadline of one operation (20)")
    add("--json", type=Path, metavar="FILE", help="write the results to this file, too")
    add("--csv", type=Path, metavar="FILE", help="write the results to this file, too")
    add("--trace", type=Path, metavar="FILE",
        help="write what every rank did when to this file (or into this folder), for ui.perfetto.dev and python -m "
        "hpccomm.trace; tracing is then part of all times")
    add("--report", type=Path, metavar="DIR",
        help="write a page to DIR/index.html that opens in a browser, its plots as PNG and SVG, and results.json")
    add("--from", dest="sources", type=Path, metavar="FILE", **_SEVERAL,
        help="make the --report of these --json files, of runs on one or several numbers of ranks, without a run")
    add("--compare", type=Path, metavar="FILE", **_SEVERAL,
        help="compare median times with those of a --json file; two files: without a run")
    add("--tolerance", type=_percent, metavar="PERCENT", help="how much slower a row may be (10%%)")
    add("--min-busbw", dest="min_busbw_gbps", type=_rate, metavar="GB/s",
        help="fail where a backend's highest busbw in a table is below this")
    add("--wide", action="store_true", default=None, help="show skew and the rate between nodes, too")
    add("--progress", choices=("auto", "on", "off"),
        help="show on standard error what goes on (auto: on a terminal)")
    add("--version", action="version", version=f"hpccomm {__version__}")
    # fmt: on
    _add_measures(parser)
    return parser


def _add_measures(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("measurements that are no table of a collective").add_argument
    # fmt: off
    add("--measure", dest="measures", choices=MEASURES, metavar="NAME", **_SEVERAL,
        help="without --collective no tables: "
        f"{'; '.join(f'{name}: {one.about}' for name, one in MEASURES.items())}")
    add("--model", choices=MODELS, metavar="NAME",
        help=f"whose gradients or traffic: {', '.join(MODELS)} (resnet50; of workloads gpt3-1.3b)")
    add("--buckets", type=_size, metavar="SIZE", **_SEVERAL, help="sizes of gradient buckets (1M 5M 25M 125M)")
    add("--batch", type=_number(1), metavar="N",
        help="rows in backward of overlap (32), micro-batches of workloads (8)")
    add("--tp", type=_number(1), metavar="N", help="ranks that share a layer (as fit into every node, up to 8)")
    add("--pp", type=_number(1), metavar="N", help="stages of a pipeline (1)")
    add("--dp", type=_number(1), metavar="N", help="data parallel ranks (all that remain)")
    add("--scale", type=_number(1), metavar="N", help="take one N-th of the model's elements (1)")
    # fmt: on


def _size(text: str) -> int:
    """Read a size of at least one byte."""
    try:
        found = parse_bytes(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is {error.found}: {error.remedy}") from None
    return found if found else _refuse(text, "a size of at least one byte")


def _number(least: int) -> Callable[[str], int]:
    """Give the reader of a whole number from `least`."""

    def read(text: str) -> int:
        fits = text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least
        return int(text) if fits else _refuse(text, f"a whole number from {least}")

    return read


def _seconds(text: str) -> float:
    """Read a positive time in seconds."""
    found = _real(text)
    return found if 0 < found < 1e6 else _refuse(text, "a number of seconds above 0")


def _rate(text: str) -> float:
    """Read a positive rate in GB/s."""
    found = _real(text)
    return found if 0 < found < 1e6 else _refuse(text, "a rate in GB/s above 0")


def _percent(text: str) -> float:
    """Read a part of a whole; the sign must stand, as 10 may mean 10 or 1000 %."""
    found = _real(text.removesuffix("%"))
    return found / 100 if text.endswith("%") and 0 <= found < 1e6 else _refuse(text, "a percentage, such as 10%")


def _switch(text: str) -> bool:
    """Read 1 or 0."""
    return text == "1" if text in ("0", "1") else _refuse(text, "1 or 0")


def _backend(text: str) -> str:
    """Check an expression's spelling; a file is read later, by one rank for all."""
    try:
        return text if text.startswith("@") else str(expression.parse(text))
    except ExpressionError as error:
        raise argparse.ArgumentTypeError(f"{error.asked}\n    {error.found}; {error.remedy}") from None


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _refuse(text: str, wanted: str) -> Any:
    raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")


def _error(found: str) -> OptionError:
    return OptionError(
        "read the options of python -m hpccomm.bench",
        found=found,
        remedy="correct it; --help lists the options",
        everywhere=True,
    )
