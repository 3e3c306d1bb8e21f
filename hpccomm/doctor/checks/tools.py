"""Other programs' answers, files of the kernel, and sizes in words."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

TOOL_S = 5.0  # for a program that only says what it is


def ask(command: Sequence[str], environ: Mapping[str, str] | None = None) -> str:
    """Run a program and give what it says, on whichever stream.

    Raises:
        subprocess.TimeoutExpired: It did not end in time, and was ended.
        OSError: It cannot be run.
    """
    ran = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TOOL_S,
        env=environ,
        text=True,
        errors="replace",
    )
    return ran.stdout


def read(path: str) -> str:
    """Give a file's text without the blanks around it; empty where it cannot be read."""
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return ""


def has_container(environ: Mapping[str, str]) -> str:
    """Name the container engine that this process runs under, or nothing."""
    if environ.get("APPTAINER_CONTAINER") or environ.get("SINGULARITY_CONTAINER"):
        return "Apptainer"
    if Path("/run/.containerenv").exists():
        return "Podman"
    if Path("/.dockerenv").exists():
        return "Docker"
    groups = read("/proc/1/cgroup")
    known = {"kubepods": "Kubernetes", "docker": "Docker", "lxc": "LXC", "containerd": "containerd"}
    return next((name for mark, name in known.items() if mark in groups), environ.get("container", ""))
