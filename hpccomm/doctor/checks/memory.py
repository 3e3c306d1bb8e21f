"""Shared memory: MPI, NCCL and data loaders keep what ranks of a host exchange in files of /dev/shm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpccomm.doctor.case import Case, Facts, Host, names
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.checks.tools import has_container
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.topology.grouping import count
from hpccomm.units import format_bytes

_FOLDER = "/dev/shm"
_MIB = 2**20
_A_RANK = 16 * _MIB  # Open MPI's segment of one rank
_SMALL = 128 * _MIB  # containers have 64 MiB where nothing else is said
_IN_CONTAINER = "docker run --shm-size=8g (or --ipc=host) …"
_OURS = re.compile(r"mpich_shm_|sm_segment\.|vader_segment\.|Intel_MPI|shm-|nccl-|torch_|ucx_|psm2?_shm")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read its size, and find files of this user's former jobs that no process maps any more."""
    try:
        found = os.statvfs(_FOLDER)
    except OSError:
        return {"size": 0, "free": 0, "left": 0, "left_bytes": 0, "example": "", "container": has_container(environ)}
    left = _leftovers()
    return {
        "size": found.f_frsize * found.f_blocks,
        "free": found.f_frsize * found.f_bavail,
        "left": len(left),
        "left_bytes": sum(left.values()),
        "example": min(left, default=""),
        "container": has_container(environ),
    }


def _leftovers() -> dict[str, int]:
    """Give the files that nobody of this process table maps, with the bytes that they hold."""
    files: dict[str, int] = {}
    for file in Path(_FOLDER).iterdir():
        with suppress(OSError):
            status = file.stat()
            if _OURS.match(file.name) and status.st_uid == os.geteuid():
                files[file.name] = status.st_blocks * 512
    mapped = _mapped() if files else set()
    return {name: held for name, held in files.items() if name not in mapped}


def _mapped() -> set[str]:
    names = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            text = (process / "maps").read_text(errors="replace")
            names |= set(re.findall(rf"{_FOLDER}/(\S+)", text))
    return names


def judge(case: Case) -> Iterator[Finding]:
    """Shared memory that runs out ends ranks by a bus error, in the middle of anything."""
    small = [(host, facts) for host, facts in case.of_hosts("memory") if facts["free"] < _need(host)]
    for host, facts in small[:1]:
        fails = any(facts["free"] < host.num_ranks * _A_RANK for host, facts in small)
        free, size = format_bytes(facts["free"]), format_bytes(facts["size"])
        left = f", {format_bytes(facts['left_bytes'])} by former jobs" * (facts["left_bytes"] > _MIB)
        in_container = bool(facts["container"])
        yield Finding(
            Severity.ERROR if fails else Severity.WARNING,
            "memory",
            f"{_FOLDER} is small on {names([host for host, _ in small])}: {free} free of {size}",
            found=f"{count_needed(host)}{left}; where it runs out, ranks die of SIGBUS",
            remedy="give the container more" if in_container else "make it larger, or remove what is left over there",
            setting=_IN_CONTAINER if in_container else f"mount -o remount,size=8g {_FOLDER}",
        )
    left = [(host, facts) for host, facts in case.of_hosts("memory") if facts["left"]]
    if left and not small:
        files, held = (sum(facts[key] for _, facts in left) for key in ("left", "left_bytes"))
        yield Finding(
            Severity.NOTE,
            "memory",
            f"{files} files of former jobs in {_FOLDER} of {names([host for host, _ in left])}",
            found=f"they hold {format_bytes(held)}, and no process here maps them, e.g. {left[0][1]['example']}",
            remedy="remove them while none of your jobs runs there",
        )


def _need(host: Host) -> int:
    return _SMALL + _A_RANK * (host.num_ranks - 1)


def count_needed(host: Host) -> str:
    """Say what the ranks of a host take."""
    needed = format_bytes(host.num_ranks * _A_RANK)
    return f"Open MPI alone takes {needed} for {count(host.num_ranks, 'rank')}, NCCL and data loaders take more"


def show(facts: Facts) -> Iterator[Line]:
    """Give its size; what is free differs from host to host."""
    yield Line(_FOLDER, f"{format_bytes(facts['size'])}")
    yield Line(f"{_FOLDER} free", f"{format_bytes(facts['free'])}", is_own=True)
    yield Line("container", facts["container"] or "none seen")


CHECK = Check("memory", look, judge, show)
