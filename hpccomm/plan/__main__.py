"""The command line: ``python -m hpccomm.plan --nodes 512 --ranks-per-node 8 --fit RESULT.json``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from hpccomm.algorithms import COLLECTIVES
from hpccomm.bench import compare
from hpccomm.errors import HpccommError, OptionError
from hpccomm.plan import observations, report, thumb
from hpccomm.plan.fitting import fit
from hpccomm.plan.outlook import ITEMSIZE, outlook
from hpccomm.units import parse_bytes
from hpccomm.whole import write_whole

_PROGRAM = "python -m hpccomm.plan"
_WIDTH = 120  # where the output goes to no terminal
_MOST_RANKS = 1_000_000
_DESCRIPTION = """
Predict what collectives cost at a scale that was not measured: links inside and between nodes are fitted to the times
of algorithms in the benchmark's results, and every algorithm is priced with them at every size and number of nodes.
"""
_EPILOG = """
Results to fit: python -m hpccomm.bench --algorithm ring tree halving_doubling --backend "hierarchical(ring(mpi4py),
ring(mpi4py))" --json FILE, on one node and on several, each with all of its ranks; then --carrier mpi4py, as
--algorithm measures over all carriers. Predictions are of these schedules
over the same carrier; what MPI or Gloo choose by themselves is not planned. Exit status: 0, or 2 for options or results
that do not fit.
"""


def main(argv: Sequence[str]) -> int:
    """Fit, predict and show; gives the exit status.

    Args:
        argv: Arguments after ``python -m hpccomm.plan``.
    """
    options = _parser().parse_args(argv)
    try:
        _plan(options)
    except HpccommError as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return 2
    return 0


def _plan(options: argparse.Namespace) -> None:
    sizes = _sizes(options)
    _refuse_numbers(options)
    runs = [compare.load(path, option="--fit") for path in options.fit]
    rows, left_out = observations.read(runs, options.carrier)
    fitted = fit(rows)
    found = outlook(
        fitted,
        options.collective,
        num_nodes=options.nodes,
        ranks_per_node=options.ranks_per_node,
        sizes=sizes,
    )
    verdicts = thumb.verdicts(found) if options.rule_of_thumb else []
    if options.json:
        _write(options.json, json.dumps(report.entries(fitted, found, left_out, verdicts), indent=1) + "\n")
    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False, emoji=False)
    console.print(report.report(fitted, found, left_out, verdicts))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=_PROGRAM, description=_DESCRIPTION, epilog=_EPILOG, allow_abbrev=False)
    add = parser.add_argument
    add("--nodes", type=int, required=True, metavar="N", help="nodes to plan for")
    add("--ranks-per-node", type=int, required=True, metavar="N", help="ranks on each of them")
    add(
        "--fit",
        type=Path,
        required=True,
        nargs="+",
        action="extend",
        metavar="FILE",
        help="the benchmark's --json files",
    )
    add("--carrier", metavar="NAME", help="backend whose messages are planned (the only one in the results)")
    add("--collective", choices=COLLECTIVES, default="all_reduce", metavar="NAME", help="%(choices)s (all_reduce)")
    add("-b", "--minbytes", default="4", metavar="SIZE", help="first size (4)")
    add("-e", "--maxbytes", default="1G", metavar="SIZE", help="last size (1G)")
    add("-f", "--stepfactor", type=int, default=16, metavar="N", help="from a size to the next (16)")
    add(
        "--rule-of-thumb",
        action="store_true",
        help="show what it costs to take a ring up to 8 ranks, a tree on 4 to 16 "
        "nodes and a hierarchy from 100 nodes on",
    )
    add("--json", type=Path, metavar="FILE", help="write fit, rows and predictions to this file, too")
    return parser


def _sizes(options: argparse.Namespace) -> list[int]:
    if options.collective == "barrier":
        return [ITEMSIZE]
    least, most = parse_bytes(options.minbytes), parse_bytes(options.maxbytes)
    if not ITEMSIZE <= least <= most or options.stepfactor < 2:
        found = f"sizes from {least} to {most} bytes, each {options.stepfactor} times the last"
        raise OptionError("plan", found=found, remedy=f"begin with {ITEMSIZE} bytes or more, and grow")
    sizes = [least]
    while sizes[-1] * options.stepfactor <= most:
        sizes.append(sizes[-1] * options.stepfactor)
    return sizes


def _refuse_numbers(options: argparse.Namespace) -> None:
    nodes, ranks_per_node = options.nodes, options.ranks_per_node
    if min(nodes, ranks_per_node) < 1 or not 2 <= nodes * ranks_per_node <= _MOST_RANKS:
        asked, remedy = f"plan for {nodes} nodes of {ranks_per_node} ranks", f"ask for 2 to {_MOST_RANKS} ranks"
        raise OptionError(asked, found=f"{nodes * ranks_per_node} ranks", remedy=remedy)


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise OptionError(f"write to --json {path}", found=str(error), remedy="name another file") from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
