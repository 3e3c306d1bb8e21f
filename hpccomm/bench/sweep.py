"""Compare settings that a library reads once a process: a child job each, of the same ranks, and one table of all.

Every rank starts its own child, without its launcher's variables and with torchrun's; the children meet at a port of
rank 0's host. A rank of the sweep itself never loads NCCL's settings.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import hpccomm
from hpccomm.backends.nccl_ranks import why_not
from hpccomm.bench import report
from hpccomm.bench.files import Result
from hpccomm.bench.layout import Layout
from hpccomm.bench.metrics import Times
from hpccomm.bench.options import Options
from hpccomm.bench.rows import Cell, Row, State
from hpccomm.bench.screen import Screen
from hpccomm.bench.settings import settings
from hpccomm.bench.tables import WHAT, tables
from hpccomm.bench.text import field
from hpccomm.errors import OptionError
from hpccomm.launch import ALONE, Launch
from hpccomm.launch.stripped import stripped
from hpccomm.network import choose, listen
from hpccomm.whole import write_whole

_START_S = 180.0


def run(options: Options, launch: Launch, screen: Screen) -> int:
    """Measure every setting, and show them side by side; collective.

    Args:
        options: The same on all ranks.
        launch: What started the ranks.
        screen: Where rank 0 writes.

    Returns:
        The exit status, the same on all ranks: 0; 1 where a setting could not be measured; 2 where none can.
    """
    backend = "auto" if launch.launcher is ALONE else "mpi4py" if launch.uses_mpi else "gloo"
    with hpccomm.init(backend, timeout_s=2 * _START_S) as world:
        screen.speaks = world.topology.rank == 0
        faults = world.exchange.all_gather(why_not(world.device))
        if any(faults):
            rank = next(rank for rank, fault in enumerate(faults) if fault)
            host = world.topology.hostnames[world.topology.hosts[rank]]
            screen.say([f"python -m hpccomm.bench: {_refusal(options, faults[rank], host, rank)}"], file=sys.stderr)
            return 2
        asked = options.backends or ("nccl",)
        swept = replace(options, sweep=(), json=None, backends=asked, device="cuda", progress="off")
        found = {}
        for setting in settings(options.sweep):
            screen.progress.show(f"measuring with {setting.name}")
            found[setting.name] = measure(world, setting.options.environment, swept, timeout_s=_limit_s(options))
        if screen.speaks:
            _show(options, found, world.topology.world_size, screen)
        screen.ended = True
        failed = world.exchange.all_gather(any(isinstance(one, str) for one in found.values()))[0]
        return int(failed)


def _refusal(options: Options, fault: str, host: str, rank: int) -> OptionError:
    return OptionError(
        f"compare settings of NCCL: {' '.join(options.sweep)}",
        found=f"{fault} on {host} (rank {rank}), so that NCCL cannot run",
        remedy="start where every rank has a GPU",
        everywhere=True,
    )


def measure(
    world: hpccomm.World, variables: Mapping[str, str], options: Options, *, timeout_s: float
) -> dict[str, Any] | str:
    """Measure in a child job; collective.

    Args:
        world: The ranks.
        variables: What the children have in their environment besides.
        options: What they measure; the files are left aside.
        timeout_s: Seconds that they may take.

    Returns:
        On rank 0 what a run writes as JSON, elsewhere nothing of it; or why there is none, on all ranks.
    """
    address = choose(world.exchange, world.topology.hosts, os.environ.get("HPCCOMM_INTERFACE")).address
    here = (address, _free_port(address)) if world.topology.rank == 0 else None
    meeting = world.exchange.all_gather(here)[0]
    assert meeting is not None
    with TemporaryDirectory(prefix="hpccomm-sweep-") as folder:
        file = Path(folder, "result.json")
        environ = {**stripped(os.environ), **_ranks(world, meeting), **variables}
        error = _child(replace(options, json=file if world.topology.rank == 0 else None), environ, timeout_s)
        errors = world.exchange.all_gather(error)
        result = json.loads(file.read_text()) if file.exists() else {"results": []}
    first = next((f"rank {rank}: {one}" for rank, one in enumerate(errors) if one), "")
    return first or result


def _free_port(address: str) -> int:
    with listen(address) as socket:
        return int(socket.getsockname()[1])


def _ranks(world: hpccomm.World, meeting: tuple[str, int]) -> dict[str, str]:
    topology = world.topology
    values = {
        "TORCHELASTIC_RUN_ID": f"sweep-{meeting[1]}",
        "RANK": topology.rank,
        "WORLD_SIZE": topology.world_size,
        "LOCAL_RANK": topology.local_rank,
        "LOCAL_WORLD_SIZE": topology.local_world_size,
        "MASTER_ADDR": meeting[0],
        "MASTER_PORT": meeting[1],
    }
    return {name: str(value) for name, value in values.items()}


def _child(options: Options, environ: Mapping[str, str], timeout_s: float) -> str:
    """Run one rank of a child job; give what went wrong, or nothing. Wrong results and slow rows are for the table."""
    command = [sys.executable, "-m", "hpccomm.bench.swept"]
    try:
        ran = subprocess.run(command, input=pickle.dumps(options), env=environ, capture_output=True, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        return f"no end after {timeout_s:g} s"
    if ran.returncode in (0, 1) and (options.json is None or options.json.exists()):
        return ""
    said = ran.stderr.decode(errors="replace").strip().splitlines() or ["without a word"]
    return f"ended with status {ran.returncode}: {' '.join(' '.join(said[-3:]).split())[:300]}"


def _limit_s(options: Options) -> float:
    return _START_S + 3 * options.budget_s


def _show(options: Options, found: Mapping[str, dict[str, Any] | str], ranks: int, screen: Screen) -> None:
    """Show all settings' results as one run's, with settings for backends, and write them."""
    measured = {name: one["results"] for name, one in found.items() if not isinstance(one, str)}
    several = len({result["backend"] for results in measured.values() for result in results}) > 1
    rows: list[Result] = [
        {**result, "backend": f"{result['backend']} {name}" if several else name}
        for name, results in measured.items()
        for result in results
    ]
    columns = tuple(dict.fromkeys(row["backend"] for row in rows))
    environment: dict[str, Any] = next((one["environment"] for one in found.values() if not isinstance(one, str)), {})
    screen.say(field("ranks", environment.get("topology", f"{ranks} ranks")))
    screen.say(report.not_built({name: one for name, one in found.items() if isinstance(one, str)}))
    screen.say(report.legend(Layout(columns)))
    for table in tables(options, ranks):
        here = [row for row in rows if {key: row[key] for key in WHAT} == table.what]
        sizes = sorted({row["size_bytes"] for row in here})
        layout = Layout(columns, tuple(sizes), factor=table.factor)
        lines = [Row(size, _cells([row for row in here if row["size_bytes"] == size], columns)) for size in sizes]
        if lines:
            screen.say(report.head(table, layout))
            for line in lines:
                screen.say(report.row_lines(line, layout))
            screen.say(report.footer(lines, layout, left_out=None))
    if options.json is not None:
        write_whole(options.json, json.dumps({"environment": environment, "complete": True, "results": rows}, indent=1))


def _cells(rows: Sequence[Result], columns: Sequence[str]) -> tuple[Cell, ...]:
    """Give the cells of one size, in the order of the columns."""
    of = {row["backend"]: row for row in rows}
    return tuple(_cell(name, of.get(name)) for name in columns)


def _cell(name: str, row: Result | None) -> Cell:
    if row is None:
        return Cell(name, State.DROPPED)
    if row["time_us_median"] is None:
        return Cell(name, State.WRONG if row["wrong"] else State.FAILED, wrong=row["wrong"], error=row["error"])
    figures = {f"{one}_us": row[f"time_us_{one}"] for one in ("median", "min", "p95", "p99", "max")}
    times = Times(iterations=row["iterations"], skew_us=row["skew_us_median"], **figures)
    return Cell(name, State.MEASURED, times=times, wrong=row["wrong"])
