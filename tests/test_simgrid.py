"""The cost model against SimGrid: the same where no link is shared, and SimGrid slower where one is."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from harness import ROOT

PYTHON = Path("/usr/bin/python3")  # Debian's, which its python3-simgrid is for
PROGRAM = """
import json
from dataclasses import asdict
from bench.simgrid_check import Case, rows

cases = [Case(platform, name, 16) for platform, name in (
    ("star", "ring"), ("fat tree", "halving_doubling"), ("ring", "tree"), ("fat tree 4:1", "halving_doubling"))]
found = rows([*cases, Case("star", "hierarchical(ring, ring)", 4, 4)])
print(json.dumps([asdict(row) for row in found]))
"""


def system_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PYTHON, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)


def test_predictions_agree_with_simgrid_where_no_link_is_shared() -> None:
    if not PYTHON.exists() or system_python("import simgrid").returncode:
        pytest.skip(f"{PYTHON} has no simgrid: apt install python3-simgrid")
    ran = system_python(PROGRAM)
    assert ran.returncode == 0, ran
    *alone, contended, rails = json.loads(ran.stdout)
    for row in alone:
        assert row["together"] == 1, row
        assert row["predicted_s"] == pytest.approx(row["simgrid_s"], rel=0.1), row
    assert contended["together"] == 4
    assert contended["simgrid_s"] > 2 * contended["predicted_s"]
    assert rails["together"] == 4  # on the link of a node, which the cost model knows as its injection
    assert rails["predicted_s"] == pytest.approx(rails["simgrid_s"], rel=0.1)
