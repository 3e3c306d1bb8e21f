"""The house's rules that a reader of the code relies on: imports go down, files and functions stay small."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "hpccomm"
FLOORS = {
    0: ("errors", "units", "lazy", "whole", "claim", "liveness", "polling", "output", "rollcall", "ulfm", "exchange"),
    1: ("launch", "topology", "network", "expression", "transport_options", "schedule", "timeline", "tuning", "watch"),
    2: ("algorithms", "cost"),
    3: ("backends",),
    4: ("bootstrap",),
    5: ("training",),
    6: ("bench", "run", "doctor", "tune", "plan", "trace", "jobs"),
}
FACE = 6  # hpccomm itself: what a user imports, so only commands may
HEAVY = {"torch", "mpi4py", "numpy", "cupy"}
STARTS_ON_IMPORT = {"mpi4py": "hpccomm.backends.mpi", "cupy": "hpccomm.backends.nccl_cupy"}
MAX_FILE = 300
MAX_BODY = 60

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Import:
    """One imported name; `runs_at_once` is False inside functions and under TYPE_CHECKING."""

    name: str
    line: int
    runs_at_once: bool


def module_name(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(file): file for file in sorted((ROOT / PACKAGE).rglob("*.py"))}
TREES = {name: ast.parse(file.read_text()) for name, file in FILES.items()}
SOURCES = [file for folder in (PACKAGE, "tests", "bench", "jobs") for file in sorted((ROOT / folder).rglob("*.py"))]


def imports(tree: ast.AST, package: str) -> Iterator[Import]:
    """Find the imports of a module in `package`; `from a import b` gives a.b, relative ones are resolved."""

    def walk(node: ast.AST, at_once: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, at_once) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (Import(f"{origin}.{alias.name}", node.lineno, at_once) for alias in node.names)
        deferred = isinstance(node, Function | ast.Lambda)
        deferred |= isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, at_once and not deferred)

    return walk(tree, True)


def module_imports(module: str) -> list[Import]:
    is_package = FILES[module].name == "__init__.py"
    return list(imports(TREES[module], module if is_package else module.rpartition(".")[0]))


def own_modules(module: str) -> dict[str, int]:
    """Give the modules of the package that `module` imports, each with a line."""
    names = {found.name: found.line for found in module_imports(module) if top(found.name) == PACKAGE}
    return {name if name in FILES else name.rpartition(".")[0]: line for name, line in names.items()}


def top(name: str) -> str:
    return name.partition(".")[0]


def floor(module: str) -> int | None:
    """Give the floor of a module, or None where the table has no row for it."""
    if module == PACKAGE:
        return FACE
    row = module.split(".")[1]
    return next((number for number, rows in FLOORS.items() if row in rows), None)


def bodies(tree: ast.AST) -> Iterator[tuple[Function, int]]:
    """Find all functions and the number of lines from the first statement after the docstring to the last."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            yield (
                node,
                node.body[-1].end_lineno - body[0].lineno + 1 if body and node.body[-1].end_lineno else 0,
            )


SNIPPET = """
import os.path as p, torch
from . import units
from .errors import LaunchError
from ..cost import fit
from hpccomm.backends import base
if TYPE_CHECKING:
    import numpy
def f():
    "Say."

    from mpi4py import MPI
    return 1
class C:
    import cupy
"""


def test_imports_are_found_everywhere() -> None:
    found = {(item.name, item.runs_at_once) for item in imports(ast.parse(SNIPPET), "hpccomm.bench")}
    at_once = [
        "os.path",
        "torch",
        "hpccomm.bench.units",
        "hpccomm.bench.errors.LaunchError",
        "hpccomm.cost.fit",
    ]
    at_once += ["hpccomm.backends.base", "cupy"]
    assert found == {(name, True) for name in at_once} | {("numpy", False), ("mpi4py.MPI", False)}
    assert [(node.name, lines) for node, lines in bodies(ast.parse(SNIPPET))] == [("f", 2)]


@pytest.mark.parametrize(
    ("module", "expected"),
    [("hpccomm", 6), ("hpccomm.units", 0), ("hpccomm.backends.mpi", 3), ("hpccomm.no", None)],
)
def test_floor_of_a_module(module: str, expected: int | None) -> None:
    assert floor(module) == expected


def test_every_module_has_a_floor() -> None:
    homeless = [module for module in FILES if floor(module) is None]
    assert not homeless, "give these a row in FLOORS"


def test_imports_go_down() -> None:
    rising = [
        f"{FILES[module]}:{line}: floor {floor(module)} imports {target} of floor {floor(target)}"
        for module in FILES
        for target, line in own_modules(module).items()
        if (floor(target) or 0) > (floor(module) or 0)
    ]
    assert not rising, "\n".join(rising)


def test_no_module_imports_itself_in_a_circle() -> None:
    try:
        TopologicalSorter({module: set(own_modules(module)) for module in FILES}).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)


def test_low_floors_need_no_library() -> None:
    heavy = [
        f"{FILES[module]}:{found.line}: floor {floor(module)} imports {found.name}"
        for module in FILES
        if (floor(module) or 0) <= 2
        for found in module_imports(module)
        if top(found.name) in HEAVY
    ]
    assert not heavy, "\n".join(heavy)


def test_libraries_that_start_on_import_are_imported_late() -> None:
    early = [
        f"{FILES[module]}:{found.line}: import {found.name} inside the function that needs it"
        for module in FILES
        for found in module_imports(module)
        if found.runs_at_once and STARTS_ON_IMPORT.get(top(found.name), module) != module
    ]
    assert not early, "\n".join(early)


def test_files_are_short() -> None:
    lengths = {str(file): len(file.read_text().splitlines()) for file in SOURCES}
    assert lengths
    assert not {file: lines for file, lines in lengths.items() if lines > MAX_FILE}


def test_functions_are_short() -> None:
    long = [
        f"{file}:{node.lineno}: {node.name} has {lines} lines"
        for file in SOURCES
        for node, lines in bodies(ast.parse(file.read_text()))
        if lines > MAX_BODY
    ]
    assert not long, "\n".join(long)


def test_importing_the_package_starts_nothing() -> None:
    program = f"""if True:
    import os, sys, threading
    environ, modules = dict(os.environ), set(sys.modules)
    import hpccomm
    assert dict(os.environ) == environ, set(os.environ.items()) ^ set(environ.items())
    loaded = {HEAVY!r} & (set(sys.modules) - modules)
    assert not loaded, loaded
    assert threading.active_count() == 1, threading.enumerate()
    """
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
