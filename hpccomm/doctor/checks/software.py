"""Versions and files of what communicates, the launchers in PATH, and that all hosts have the same."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata, util
from pathlib import Path
from typing import Any

from hpccomm import __version__
from hpccomm.doctor.case import Case, Facts
from hpccomm.doctor.checks.check import Check, Line
from hpccomm.doctor.checks.tools import ask
from hpccomm.doctor.finding import Finding, Severity
from hpccomm.launch import ALONE, launcher_of
from hpccomm.topology.grouping import listed

_PACKAGES = ("torch", "mpi4py", "numpy")
_LAUNCHERS = ("mpirun", "mpiexec")
_VENDORS = {"Open MPI": "Open MPI", "HYDRA": "MPICH", "Intel": "Intel MPI"}  # by a word of what mpirun --version says
_MUST_AGREE = ("hpccomm", "torch", "mpi4py", "MPI library")


def look(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read versions off the packages' own records, and ask the launchers; nothing is imported."""
    return {
        "versions": {"python": platform.python_version(), "hpccomm": __version__} | dict(map(_version, _PACKAGES)),
        "files": {"python": sys.executable} | dict(map(_file, ("hpccomm", *_PACKAGES))),
        "launchers": {name: _launcher(path) for name in _LAUNCHERS if (path := shutil.which(name))},
        "started_by": "" if launcher_of(environ) is ALONE else _parent(),
    }


def _version(package: str) -> tuple[str, str]:
    with suppress(metadata.PackageNotFoundError):
        return package, metadata.version(package)
    return package, "not installed"


def _file(package: str) -> tuple[str, str]:
    with suppress(ImportError, ValueError):
        found = util.find_spec(package)
        return package, str(Path(found.origin).parent) if found is not None and found.origin else ""
    return package, ""


def _launcher(path: str) -> dict[str, str]:
    text = ask([path, "--version"])
    vendor = next((name for word, name in _VENDORS.items() if word in text), "unknown")
    number = re.search(r"\d+(?:\.\d+)+", text)
    return {"path": path, "vendor": vendor, "version": number[0] if number else ""}


def _parent() -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{os.getppid()}/exe").readlink())
    return ""


def versions(facts: Facts, libraries: Facts) -> dict[str, str]:
    """Give all versions of a host: what the packages say, overruled by what was imported."""
    imported = {"torch": libraries.get("torch", ""), "MPI library": libraries.get("mpi", "")}
    return {**facts["versions"], **{name: version for name, version in imported.items() if version}}


def judge(case: Case) -> Iterator[Finding]:
    """Hosts must have the same software, and the launcher in PATH must be the MPI library's own."""
    by_name: dict[str, dict[str, list[str]]] = {}
    for host, facts in case.of_hosts("software"):
        for name, version in versions(facts, host.sights[0].facts.get("libraries", {})).items():
            by_name.setdefault(name, {}).setdefault(version, []).append(host.name)
    for name, holders in by_name.items():
        if len(holders) > 1:
            yield Finding(
                Severity.ERROR if name in _MUST_AGREE else Severity.WARNING,
                "software",
                f"hosts have different versions of {name}",
                found="; ".join(f"{version} on {listed(hosts)}" for version, hosts in holders.items()),
                remedy="install one environment on a file system that all hosts share, or the same on each",
            )
    yield from _strange_launcher(case)


def _strange_launcher(case: Case) -> Iterator[Finding]:
    """Warn of an mpirun that would not join ranks of this library; what was started is judged at the start."""
    host, facts = case.of_hosts("software")[0] if case.of_hosts("software") else (None, {})
    libraries = host.sights[0].facts.get("libraries", {}) if host is not None else {}
    library, file = libraries.get("mpi", ""), libraries.get("mpi_file", "")
    found = facts.get("launchers", {}).get("mpirun")
    if case.trial.launcher != ALONE.name or not found or not library or found["vendor"] == "unknown":
        return
    families = {"Open MPI": "Open MPI", "MPICH": "MPICH", "Intel MPI": "MPICH"}  # Intel's and MPICH's join each other
    own = next((family for name, family in families.items() if library.startswith(name)), "")
    if own and own != families[found["vendor"]]:
        beside = Path(sys.executable).with_name("mpirun")
        yield Finding(
            Severity.WARNING,
            "software",
            f"the mpirun in PATH belongs to {found['vendor']}, the MPI library to {library.partition(' ')[0]}",
            found=f"{found['path']} is {found['vendor']} {found['version']}; mpi4py loads {library}: {file}",
            remedy="call the mpirun that was installed with the library, or put its folder first in PATH",
            setting=f"{beside} -np 4 python …" if beside.exists() else "",
        )


def show(facts: Facts) -> Iterator[Line]:
    """Give versions with files, then the launchers."""
    for name, version in facts["versions"].items():
        yield Line(name, f"{version}  {facts['files'].get(name, '')}".rstrip())
    for name, found in facts["launchers"].items():
        yield Line(f"{name} in PATH", f"{found['vendor']} {found['version']}  {found['path']}")
    if facts["started_by"]:
        yield Line("started by", facts["started_by"])
    if not facts["launchers"]:
        yield Line("mpirun in PATH", "none")


CHECK = Check("software", look, judge, show)
