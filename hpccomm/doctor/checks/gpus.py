"""GPUs: that they are there where somebody asked for them, and what torch makes of them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpccomm.doctor.case import Case, Facts, Host, names
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.checks.tools import ask, read
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.topology.grouping import listed

_DEVICES = ("CUDA_VISIBLE_DEVICES", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS")
_COUNTS = ("SLURM_GPUS", "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_PER_TASK")
_NONE = {"", "-1", "none", "void", "NoDevFiles"}
_QUERY = ("--query-gpu=index,name,memory.total", "--format=csv,noheader")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the driver's version and its list of GPUs, and what the environment asks for."""
    asked = {name: environ.get(name, "") for name in (*_DEVICES, *_COUNTS)}
    driver = re.search(r"\d+\.\d+(?:\.\d+)?", read("/proc/driver/nvidia/version"))
    tool = shutil.which("nvidia-smi")
    listing = ask([tool, *_QUERY], environ).strip().splitlines() if tool and driver else []
    return {
        "driver": driver[0] if driver else "",
        "devices": sorted(str(file) for file in Path("/dev").glob("nvidia[0-9]*")),
        "gpus": listing,
        "asked": {
            name: value for name, value in asked.items() if value not in _NONE and (name in _DEVICES or value != "0")
        },
    }


def judge(case: Case) -> Iterator[Finding]:
    """Find hosts where GPUs were asked for and torch has none, and such where torch cannot use those there are."""
    blind: dict[str, list[tuple[Host, Facts]]] = {}
    for host, facts in case.of_hosts("gpus"):
        libraries = host.sights[0].facts.get("libraries", {})
        if libraries.get("torch") and not libraries["devices"] and (facts["asked"] or facts["devices"]):
            built = "torch has CUDA" if libraries["cuda"] else "torch is built without CUDA"
            blind.setdefault(built, []).append((host, facts))
    for built, where in blind.items():
        yield _blind(built, where)


def _blind(built: str, where: list[tuple[Host, Facts]]) -> Finding:
    facts = where[0][1]
    asked = listed([f"{name}={value}" for name, value in facts["asked"].items()]) or "no variable asks for them"
    driver = f"driver {facts['driver']}" if facts["driver"] else "no NVIDIA driver"
    hosts = names([host for host, _ in where])
    if built == "torch is built without CUDA":
        remedy, setting = "install a torch with CUDA", "pip install torch"
    elif not facts["driver"]:
        remedy = "start on a host with GPUs (Slurm: --gpus-per-node), the container with --gpus all or --nv"
        setting = f"unset {' '.join(facts['asked'])}  # if no GPU is wanted" if facts["asked"] else ""
    else:
        remedy = "compare the driver with torch's CUDA version, and the visible devices with those that there are"
        setting = "nvidia-smi"
    what = f"CUDA is expected but absent on {hosts}" if facts["asked"] else f"torch sees no GPU on {hosts}"
    found = f"{asked}; {built}, {driver}, {len(facts['devices'])} device files"
    return Finding(Severity.ERROR if facts["asked"] else Severity.WARNING, "gpus", what, found, remedy, setting)


def show(facts: Facts) -> Iterator[Line]:
    """List the GPUs."""
    yield Line("GPUs", listed(facts["gpus"] or facts["devices"], limit=8) or "none")
    yield Line("NVIDIA driver", facts["driver"] or "none")


CHECK = Check("gpus", look, judge, show)
