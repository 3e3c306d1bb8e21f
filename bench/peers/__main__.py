"""Put hpccomm beside its peers on this host: one table, from jobs that alternate between the MPIs.

``python -m bench.peers --venv .venv .venv-mpich .venv-intel --json OUT.json --plot OUT.png``: the first environment's
job measures hpccomm's backends, plain Gloo, its own MPI and the memory's limit in turn on the same memory; the others
measure their MPI alone. Ranks are bound to a core each; run nothing else meanwhile. The plot needs matplotlib.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from hpccomm.units import format_bytes

ROOT = Path(__file__).resolve().parents[2]
SIZES = "4 1KiB 16KiB 64KiB 256KiB 1MiB 4MiB 16MiB 64MiB 256MiB"
LIMIT = "limit"
Row = dict[str, Any]


def main() -> None:
    """Measure and show."""
    options = parse()
    found = merged(
        row for _ in range(options.rounds) for number in range(len(options.venv)) for row in job(options, number)
    )
    for collective in options.collective:
        Console(width=160).print(table(collective, [row for row in found if row["collective"] == collective]))
    if options.json:
        options.json.write_text(json.dumps({"options": vars(options), "results": found}, indent=1, default=str) + "\n")
    if options.plot:
        from bench.peers.plot import draw

        draw(found, options.plot)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--venv", nargs="+", type=Path, default=[Path(sys.prefix)], help="environments, an MPI in each")
    parser.add_argument("--backend", nargs="+", default=["shm", "mpi4py"], help="hpccomm's, in the first environment")
    parser.add_argument("--collective", nargs="+", default=["all_reduce"], help="as hpccomm.bench names them")
    parser.add_argument("--sizes", nargs="+", default=SIZES.split(), help=f"default: {SIZES}")
    parser.add_argument("--ranks", type=int, default=os.cpu_count(), help="default: one a core")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each MPI, in turn (default: 3)")
    parser.add_argument("--seconds", type=float, default=0.5, help="a row and round (default: 0.5)")
    parser.add_argument("--json", type=Path, help="write the rows there")
    parser.add_argument("--plot", type=Path, help="draw them there, as PNG or SVG")
    return parser.parse_args()


def job(options: argparse.Namespace, number: int) -> list[Row]:
    """Run one environment's job, and give its rows."""
    binary = options.venv[number].absolute() / "bin"
    is_open_mpi = (binary / "prterun").exists()
    binding = ["--map-by", "core", "--bind-to", "core"] if is_open_mpi else ["-bind-to", "core"]
    command = [str(binary / "mpirun"), *binding, "-np", str(options.ranks), str(binary / "python")]
    command += ["-m", "bench.peers.measure", "--seconds", str(options.seconds)]
    command += ["--sizes", *options.sizes, "--collective", *options.collective]
    command += ["--backend", *options.backend] if number == 0 else ["--bare"]
    as_root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    path = {"PATH": f"{binary}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    ran = subprocess.run(command, env=os.environ | as_root | path, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]


def merged(rows: Iterable[Row]) -> list[Row]:
    """Give one row for each contender, collective and size: the median of its jobs' medians."""
    groups: dict[tuple[str, str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["collective"], row["contender"], row["size_bytes"]), []).append(row)
    return [
        jobs[0]
        | {key: statistics.median(row[key] for row in jobs) for key in ("time_us_median", "cpu_s_per_GB")}
        | {"time_us_min": min(row["time_us_min"] for row in jobs), "jobs": len(jobs)}
        for jobs in groups.values()
    ]


def table(collective: str, rows: Sequence[Row]) -> Table:
    """Lay one collective out: times in microseconds, and the first backend against the best peer and the limit."""
    names = list(dict.fromkeys(row["contender"] for row in rows))
    peers = [name for name in names if name.startswith(("bare", "torch"))]
    own = [name for name in names if name not in peers and name != LIMIT]
    shown = Table(title=f"{collective}, {rows[0]['ranks']} ranks; time_us (CPU seconds of all ranks a GB)")
    for name in ("size", *names, f"best peer / {own[0]}", *([f"limit / {own[0]}"] if LIMIT in names else [])):
        shown.add_column(name, justify="right")
    for size in sorted({row["size_bytes"] for row in rows}):
        of = {row["contender"]: row for row in rows if row["size_bytes"] == size}
        times = {name: row["time_us_median"] for name, row in of.items()}
        ours = times[own[0]]
        ratios = [min(times[name] for name in peers) / ours, *([times[LIMIT] / ours] if LIMIT in times else [])]
        shown.add_row(format_bytes(size), *(cell(of, name) for name in names), *(f"{ratio:.2f}" for ratio in ratios))
    return shown


def cell(rows: Mapping[str, Row], name: str) -> str:
    """Show one measurement."""
    row = rows[name]
    return (
        f"{row['time_us_median']:.1f} ({row['cpu_s_per_GB']:.2f})"
        if row["size_bytes"] >= 2**16
        else f"{row['time_us_median']:.1f}"
    )


if __name__ == "__main__":
    main()
