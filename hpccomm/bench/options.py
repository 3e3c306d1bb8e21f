"""The benchmark's options, with nccl-tests' letters; pure, and free of torch so that errors come at once.

No option is called like one of Open MPI's mpirun, which reads the program's options too.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from hpccomm import __version__
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.errors import ExpressionError, OptionError
from hpccomm.expression import parse as parse_expression
from hpccomm.units import parse_bytes

OPS = {"sum": "sum", "prod": "prod", "product": "prod", "min": "min", "max": "max", "avg": "avg"}

# The names of torch and of nccl-tests
DTYPES = {
    **dict.fromkeys(("float32", "float", "fp32"), "float32"),
    **dict.fromkeys(("float64", "double", "fp64"), "float64"),
    **dict.fromkeys(("float16", "half", "fp16"), "float16"),
    **dict.fromkeys(("bfloat16", "bf16"), "bfloat16"),
    **dict.fromkeys(("int32", "int"), "int32"),
    **{name: name for name in ("int8", "uint8", "int16", "int64")},
}

_UNITS = """\
sizes   bytes of the larger of a rank's tensors: 8, 64K, 1M (powers of 1024), the same on all ranks
time    microseconds of one call: the maximum over ranks, then the median over repetitions
busbw   GB/s (10^9 bytes a second) = factor x bytes / time; with it, times of different numbers n of ranks can be
        compared with one link's speed. Factors: {factors}.
        It assumes a flat ring: for a hierarchy it is a nominal figure. With one rank there is none.
"""
_UNITS = _UNITS.format(factors=", ".join(f"{one.name} {one.formula}" for one in COLLECTIVES.values()))


@dataclass(frozen=True)
class Options:
    """What is measured and how.

    Attributes:
        collective: Key of `COLLECTIVES`.
        op: The operator; None for a collective that reduces nothing.
        dtype: Torch's name of the dtype.
        min_bytes: Smallest size.
        max_bytes: Largest size, unless the budget ends before.
        step_factor: Between a size and the next.
        iterations: Repetitions a size; None lets the budget decide.
        warmup_iters: Calls before the timed ones, or more where more are checked.
        check: Whether results are compared with what they must be.
        backends: Expressions, or @file; empty for those that fit.
        budget_s: Seconds that measuring may take.
        timeout_s: Deadline of one operation in seconds.
        json: File for the results, or None.
        progress: ``auto``, ``on`` or ``off``.
    """

    collective: str = "all_reduce"
    op: str | None = "sum"
    dtype: str = "float32"
    min_bytes: int = 4
    max_bytes: int = 64 << 20
    step_factor: int = 4
    iterations: int | None = None
    warmup_iters: int = 2
    check: bool = True
    backends: tuple[str, ...] = ()
    budget_s: float = 45.0
    timeout_s: float = 20.0
    json: Path | None = None
    progress: str = "auto"


def parse(argv: Sequence[str]) -> Options:
    """Read the options.

    Raises:
        OptionError: An option that does not exist or does not fit; the same wherever the same `argv` is read.
        SystemExit: After ``--help`` and ``--version``, with status 0.
    """
    given = vars(_parser().parse_args(argv))
    collective = given["collective"]
    reduces = COLLECTIVES[collective].reduces
    if given["op"] is not None and not reduces:
        raise _error(f"-o does not fit --collective {collective}, which reduces nothing")
    given["op"] = OPS[given["op"] or "sum"] if reduces else None
    given["dtype"] = DTYPES[given["dtype"]]
    given["backends"] = tuple(dict.fromkeys(given["backends"]))
    options = Options(**given)
    if options.min_bytes > options.max_bytes:
        raise _error(f"-b {options.min_bytes} is more than -e {options.max_bytes}")
    return options


def sizes(options: Options, *, itemsize: int, ranks: int) -> list[int]:
    """Give the sizes to measure in bytes, ascending: whole elements, and equal shares where a rank has a share.

    Args:
        options: The options.
        itemsize: Bytes of an element.
        ranks: Number of ranks.
    """
    collective = COLLECTIVES[options.collective]
    unit = itemsize if collective.in_place else itemsize * ranks
    found, size = [], options.min_bytes
    while size <= options.max_bytes:
        found.append(max(1, size // unit) * unit)
        size *= options.step_factor
    return list(dict.fromkeys(found))


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _error(message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m hpccomm.bench",
        description="Measure a collective over several backends side by side, on the ranks that mpirun, srun or "
        "torchrun started.",
        epilog=_UNITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for names, described, settings in _arguments(Options()):
        parser.add_argument(*names, help=described, **settings)
    parser.add_argument("--version", action="version", version=f"hpccomm {__version__}")
    return parser


def _arguments(default: Options) -> list[tuple[tuple[str, ...], str, dict[str, Any]]]:
    """Give names, description and argparse's settings of each option."""
    size, count, seconds = (
        {"type": read, "metavar": metavar}
        for read, metavar in ((_size, "SIZE"), (_number(1), "N"), (_seconds, "SECONDS"))
    )
    return [
        (("--collective",), f"{', '.join(COLLECTIVES)} (all_reduce)",
         {"choices": COLLECTIVES, "default": default.collective, "metavar": "NAME"}),
        (("-o", "--op"), "operator of a reduction (sum)", {"choices": OPS}),
        (("-d", "--datatype"), "of an element, by torch's or NCCL's name (float32)",
         {"dest": "dtype", "choices": DTYPES, "default": default.dtype, "metavar": "TYPE"}),
        (("-b", "--minbytes"), "first size (4)", {"dest": "min_bytes", "default": default.min_bytes, **size}),
        (("-e", "--maxbytes"), "last size (64M)", {"dest": "max_bytes", "default": default.max_bytes, **size}),
        (("-f", "--stepfactor"), "from a size to the next (4)",
         {"dest": "step_factor", "type": _number(2), "default": default.step_factor, "metavar": "N"}),
        (("-n", "--iters"), "repetitions (5 to 50, by the budget)", {"dest": "iterations", **count}),
        (("-w", "--warmup_iters"), "calls before them (2)", {"default": default.warmup_iters, **count}),
        (("-c", "--check"), "compare results with what they must be (1)",
         {"type": _switch, "default": default.check, "metavar": "{0,1}"}),
        (("--backend",), "backend expressions, or @file with one (what works here)",
         {"dest": "backends", "type": _backend, "nargs": "+", "action": "extend", "default": [],
          "metavar": "EXPR"}),
        (("--budget",), "for measuring; sizes that would exceed it are left out (45)",
         {"dest": "budget_s", "default": default.budget_s, **seconds}),
        (("--timeout",), "deadline of one operation (20)",
         {"dest": "timeout_s", "default": default.timeout_s, **seconds}),
        (("--json",), "write the results to this file, too", {"type": Path, "metavar": "FILE"}),
        (("--progress",), "show on standard error what goes on (auto: on a terminal)",
         {"choices": ("auto", "on", "off"), "default": default.progress}),
    ]  # fmt: skip


def _size(text: str) -> int:
    try:
        size = parse_bytes(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is {error.found}: {error.remedy}") from None
    return size if size else _refuse(text, "a size of at least one byte")


def _number(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        fits = text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least
        return int(text) if fits else _refuse(text, f"a whole number from {least}")

    return read


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    return seconds if 0 < seconds < 1e6 else _refuse(text, "a number of seconds above 0")


def _switch(text: str) -> bool:
    return text == "1" if text in ("0", "1") else _refuse(text, "1 or 0")


def _backend(text: str) -> str:
    """Check the spelling; a file is read later, by one rank for all."""
    try:
        return text if text.startswith("@") else str(parse_expression(text))
    except ExpressionError as error:
        raise argparse.ArgumentTypeError(f"{error.asked}\n    {error.found}; {error.remedy}") from None


def _refuse(text: str, wanted: str) -> Any:
    raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")


def _error(found: str) -> OptionError:
    return OptionError(
        "read the options of python -m hpccomm.bench",
        found=found,
        remedy="correct it; --help lists the options",
        everywhere=True,
    )
