"""A fit at 2 and 4 hosts against measured times at 6 and 8, on clusters of shaped hosts on this machine.

``python -m bench.planning`` brings up 2, 4, 6 and 8 hosts of two ranks in turn, behind links of 25 Mbit/s, measures
four algorithms on each with ``python -m hpccomm.bench``, fits links to the results of 2 and 4 hosts, and prints how far
predictions are from what 6 and 8 hosts took. Needs root, an Open MPI or MPICH in this interpreter's environment, and
the extra ``plan``; takes about 15 minutes. ``--keep DIR`` keeps the results, and uses those that are there and whole.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.cluster.cluster import Cluster
from bench.cluster.placement import by_slot
from bench.prediction import CASES, Mpi
from hpccomm.bench.compare import load
from hpccomm.plan import observations
from hpccomm.plan.fitted import HIDDEN, Fit
from hpccomm.plan.fitting import fit
from hpccomm.plan.observations import Observation
from hpccomm.plan.pricing import seconds
from hpccomm.units import format_bytes, format_us

FITTED, ASKED, RANKS_PER_HOST, RATE = (2, 4), (6, 8), 2, "25mbit"
JUDGED_BYTES = 1 << 20
OPTIONS = ("-b", "64K", "-e", "4M", "-f", "2", "-n", "3", "-w", "1", "--budget", "300", "--timeout", "60")


def main() -> None:
    """Measure what was not kept, fit, and compare."""
    parser = argparse.ArgumentParser("python -m bench.planning", description=__doc__)
    parser.add_argument("--keep", type=Path, metavar="DIR")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(exist_ok=True)
        files = {hosts: measured(hosts, folder) for hosts in (*FITTED, *ASKED)}
        fitted = fit(rows([files[hosts] for hosts in FITTED]))
        show(fitted, rows([files[hosts] for hosts in ASKED]))


def measured(hosts: int, folder: Path) -> Path:
    """Run the benchmark on so many hosts, unless all of its results are there."""
    path = folder.resolve() / f"{hosts}-hosts.json"
    if path.exists() and load(path, option="--keep").complete:
        return path
    print(f"measuring on {hosts} hosts; load {os.getloadavg()[0]:.1f}", flush=True)
    program = [sys.executable, "-m", "hpccomm.bench", "--backend", *CASES, *OPTIONS, "--json", str(path)]
    with Cluster(hosts=hosts, slots=RANKS_PER_HOST, rate=RATE) as cluster:
        placement = by_slot(cluster.names, np=hosts * RANKS_PER_HOST, slots=RANKS_PER_HOST)
        subprocess.run(cluster.command(Mpi(), program, placement), check=True, stdout=subprocess.DEVNULL)
    return path


def rows(files: Sequence[Path]) -> list[Observation]:
    """Read the rows of known schedules."""
    return observations.read([load(file, option="--keep") for file in files], None)[0]


def show(fitted: Fit, asked: Sequence[Observation]) -> None:
    """Print the links, every prediction, and the median error of each algorithm."""
    for name, link in (("inside a host", fitted.intra), ("between hosts", fitted.inter)):
        assert link is not None
        if fitted.hides_intra and link is fitted.intra:
            print(f"{name}: {HIDDEN}")
        else:
            print(f"{name}: alpha {format_us(link.alpha_s * 1e6)} us, {1 / link.beta_s_per_byte / 1e6:.1f} MB/s")
    print(f"a host sends {fitted.injection_bytes_per_s / 1e6:.1f} MB/s; {len(fitted.residuals)} rows fitted")
    table = Table("backend", "hosts", "size", "predicted ms", "measured ms", "error")
    errors: dict[tuple[str, int], list[float]] = {}
    for one in asked:
        hosts = len({*one.nodes})
        predicted_s = seconds(
            one.algorithm,
            one.collective,
            one.count,
            itemsize=one.itemsize,
            fabric=fitted.fabric(hosts, RANKS_PER_HOST),
        )
        error = predicted_s / one.seconds - 1
        if one.nbytes >= JUDGED_BYTES:
            errors.setdefault((one.backend, hosts), []).append(abs(error))
        times = f"{predicted_s * 1e3:.1f}", f"{one.seconds * 1e3:.1f}"
        table.add_row(one.backend, str(hosts), format_bytes(one.nbytes), *times, f"{error * 100:+.0f} %")
    console = Console(width=110)
    console.print(table)
    for (backend, hosts), found in errors.items():
        median = statistics.median(found) * 100
        print(f"{backend} on {hosts} hosts: {median:.0f} % off (median of {len(found)} sizes from 1 MiB on)")


if __name__ == "__main__":
    main()
