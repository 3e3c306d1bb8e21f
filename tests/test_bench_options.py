"""The benchmark's options: what is read, what is refused and how, and which sizes follow."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT
from hpccomm.bench.options import DTYPES, Options, parse, sizes
from hpccomm.errors import OptionError

OF_MPIRUN = {"--bind-to", "--map-by", "--np", "--host", "--hostfile", "--output", "--rank-by", "--display"}


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("", {}),
        ("-b 8 -e 1M -f 2", {"min_bytes": 8, "max_bytes": 1 << 20, "step_factor": 2}),
        ("--minbytes 1K --maxbytes 2K --stepfactor 3", {"min_bytes": 1024, "max_bytes": 2048, "step_factor": 3}),
        ("-n 7 -w 1 -c 0", {"iterations": 7, "warmup_iters": 1, "check": False}),
        ("--iters 7 --warmup_iters 3 --check 1", {"iterations": 7, "warmup_iters": 3}),
        ("-o prod -d half", {"op": "prod", "dtype": "float16"}),
        ("--op product --datatype bfloat16", {"op": "prod", "dtype": "bfloat16"}),
        ("--collective broadcast", {"collective": "broadcast", "op": None}),
        ("--collective reduce_scatter -o max", {"collective": "reduce_scatter", "op": "max"}),
        ("--backend gloo gloo --backend mpi4py", {"backends": ("gloo", "mpi4py")}),
        ("--backend ring(gloo,by=4) @file", {"backends": ("ring(gloo, by=4)", "@file")}),
        ("--budget 2.5 --timeout 3", {"budget_s": 2.5, "timeout_s": 3.0}),
        ("--json out.json --progress off", {"json": Path("out.json"), "progress": "off"}),
    ],
)
def test_options_are_read(line: str, changed: dict[str, Any]) -> None:
    assert parse(line.split()) == replace(Options(), **changed)


@pytest.mark.parametrize("name", ["float", "double", "half", "bfloat16", "int8", "uint8", "int32", "int64"])
def test_datatypes_have_the_names_of_nccl_tests(name: str) -> None:
    torch = pytest.importorskip("torch")
    assert isinstance(getattr(torch, parse(["-d", name]).dtype), torch.dtype)


def test_every_datatype_is_torchs() -> None:
    torch = pytest.importorskip("torch")
    assert {dtype for dtype in DTYPES.values() if not isinstance(getattr(torch, dtype), torch.dtype)} == set()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("-q", "-q"),
        ("extra", "extra"),
        ("--iter 3", "--iter"),
        ("-n 0", "-n/--iters: '0' is not a whole number from 1"),
        ("-n 1.5", "-n/--iters"),
        ("-n -1", "-n/--iters"),
        ("-f 1", "-f/--stepfactor: '1' is not a whole number from 2"),
        ("-w 0", "-w/--warmup_iters"),
        ("-b 0", "-b/--minbytes: '0' is not a size"),
        ("-b 1.3", "-b/--minbytes: '1.3' is not a whole number of bytes"),
        ("-b 8 -e 4", "-b 8 is more than -e 4"),
        ("-c 2", "-c/--check"),
        ("-d complex64", "complex64"),
        ("-o mean", "mean"),
        ("--collective alltoall", "alltoall"),
        ("--collective broadcast -o sum", "broadcast, which reduces nothing"),
        ("--backend", "--backend"),
        ("--backend a(b", "ends where ',' or ')' is expected"),
        ("--budget 0", "--budget"),
        ("--timeout nan", "--timeout"),
        ("--timeout inf", "--timeout"),
        ("--progress maybe", "maybe"),
        ("--json", "--json"),
    ],
)
def test_options_are_refused(line: str, found: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(line.split())
    assert found in refused.value.found
    assert refused.value.everywhere


@pytest.mark.parametrize(("option", "shown"), [("--version", "hpccomm 0."), ("--help", "2(n-1)/n")])
def test_help_and_version(option: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse([option])
    assert left.value.code == 0
    assert shown in capsys.readouterr().out


def test_no_option_is_one_of_mpirun(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    words = {word.strip("[],") for word in capsys.readouterr().out.split()}
    assert "--backend" in words
    assert not words & OF_MPIRUN


@pytest.mark.parametrize(
    ("line", "ranks", "expected"),
    [
        ("-e 256", 2, [4, 16, 64, 256]),
        ("-e 255", 2, [4, 16, 64]),
        ("-b 4 -e 64 -d double", 2, [8, 16, 64]),
        ("-b 3 -e 14 -f 2", 2, [4, 12]),
        ("-b 4 -e 64 --collective all_gather", 3, [12, 60]),
        ("-b 4 -e 64 -f 2 --collective reduce_scatter", 4, [16, 32, 64]),
        ("-b 4 -e 4 --collective broadcast", 4, [4]),
        ("-b 1 -e 4 -d int8", 1, [1, 4]),
    ],
)
def test_sizes_hold_whole_elements_and_equal_shares(line: str, ranks: int, expected: list[int]) -> None:
    options = parse(line.split())
    itemsize = {"float32": 4, "float64": 8, "int8": 1}[options.dtype]
    assert sizes(options, itemsize=itemsize, ranks=ranks) == expected


def test_default_sizes_meet_the_usual_ones() -> None:
    found = sizes(Options(), itemsize=4, ranks=32)
    assert {4, 64 << 10, 1 << 20, 16 << 20, 64 << 20} <= set(found)


def test_options_need_no_torch() -> None:
    program = "import sys, hpccomm.bench.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False).returncode == 0
