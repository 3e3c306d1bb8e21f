"""The benchmark's options: what is read, what is refused and how, and which sizes follow."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT
from hpccomm.algorithms import ALGORITHMS
from hpccomm.bench.arguments import parse
from hpccomm.bench.collectives import COLLECTIVES
from hpccomm.bench.files import COLUMNS
from hpccomm.bench.options import DTYPES, Options
from hpccomm.bench.tables import sizes, tables
from hpccomm.errors import OptionError

ALL = (
    "all_reduce",
    "broadcast",
    "all_gather",
    "reduce_scatter",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "sendrecv",
    "barrier",
)
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
        ("--collective broadcast", {"collectives": ("broadcast",)}),
        ("--collective reduce_scatter -o max", {"collectives": ("reduce_scatter",), "op": "max"}),
        ("--collective barrier broadcast barrier -d int", {"collectives": ("barrier", "broadcast"), "dtype": "int32"}),
        ("--collective broadcast all_reduce -o max", {"collectives": ("broadcast", "all_reduce"), "op": "max"}),
        ("--collective all", {"collectives": ALL}),
        ("--collective barrier all --place both", {"collectives": ("barrier", *ALL[:-1]), "place": "both"}),
        ("--collective all --place in", {"collectives": (*ALL[:5], "barrier"), "place": "in"}),
        ("--place out", {"place": "out"}),
        ("--backend gloo gloo --backend mpi4py", {"backends": ("gloo", "mpi4py")}),
        ("--backend ring(gloo,by=4) @file", {"backends": ("ring(gloo, by=4)", "@file")}),
        ("--budget 2.5 --timeout 3", {"budget_s": 2.5, "timeout_s": 3.0}),
        ("--algorithm ring tree --algorithm ring", {"algorithms": ("ring", "tree")}),
        ("--json out.json --progress off", {"json": Path("out.json"), "progress": "off"}),
        ("--json a --csv b --wide", {"json": Path("a"), "csv": Path("b"), "wide": True}),
        ("--compare a --tolerance 2.5% --json b", {"compare": (Path("a"),), "tolerance": 0.025, "json": Path("b")}),
        ("--min-busbw 1.5", {"min_busbw_gbps": 1.5}),
        ("--pairs", {"collectives": (), "pairs_bytes": 1 << 20}),
        ("--pairs 4K --collective barrier", {"collectives": ("barrier",), "pairs_bytes": 4096}),
        ("--suite pairs", {"suite": "pairs", "collectives": (), "pairs_bytes": 1 << 20, "budget_s": 120.0}),
        ("--report out --json a", {"report": Path("out"), "json": Path("a")}),
        ("--report out --from a b", {"report": Path("out"), "sources": (Path("a"), Path("b"))}),
        (
            "--suite smoke -e 1M",
            {
                "suite": "smoke",
                "collectives": ("all_reduce", "broadcast", "barrier"),
                "max_bytes": 1 << 20,
                "step_factor": 128,
                "iterations": 3,
                "budget_s": 10.0,
            },
        ),
        (
            "--collective barrier --suite smoke -f 2",
            {
                "suite": "smoke",
                "collectives": ("barrier",),
                "max_bytes": 1 << 16,
                "step_factor": 2,
                "iterations": 3,
                "budget_s": 10.0,
            },
        ),
        ("--compare a b --tolerance 0%", {"compare": (Path("a"), Path("b")), "tolerance": 0.0}),
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
        ("--collective all_reduce nothing", "'nothing'"),
        ("--collective", "--collective"),
        ("--collective broadcast barrier -o sum", "broadcast, barrier, which reduces nothing"),
        ("--collective barrier --place in", "barrier, which has no data"),
        ("--collective all_reduce sendrecv --place in", "--place in does not fit --collective sendrecv"),
        ("--place beside", "beside"),
        ("--algorithm ring star", "'star' (choose from"),
        ("--algorithm", "--algorithm"),
        ("--compare a b c", "one file or two, not 3"),
        ("--compare a b -n 3", "two files measures nothing"),
        ("--compare a a", "one file is named twice"),
        ("--compare a --json ./a", "one file is named twice"),
        ("--json a --csv a", "one file is named twice"),
        ("--tolerance 10%", "--tolerance without --compare"),
        ("--compare a --tolerance 10", "'10' is not a percentage"),
        ("--compare a --tolerance -1%", "--tolerance"),
        ("--compare a --tolerance nan%", "--tolerance"),
        ("--backend", "--backend"),
        ("--backend a(b", "ends where ',' or ')' is expected"),
        ("--suite nothing", "'nothing' (choose from"),
        ("--min-busbw 0", "'0' is not a rate"),
        ("--pairs 0", "--pairs: '0' is not a size"),
        ("--pairs --place in", "--pairs alone has no table"),
        ("--pairs --compare a", "--pairs alone has no table"),
        ("--from a", "--from without --report"),
        ("--report out --from a -n 3", "--from measures nothing"),
        ("--min-busbw 1 --collective barrier", "barrier, which has no data"),
        ("--compare a b --min-busbw 1", "two files measures nothing"),
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


def test_an_unknown_algorithm_is_refused_with_the_list() -> None:
    with pytest.raises(OptionError) as refused:
        parse(["--algorithm", "star"])
    assert all(name in refused.value.found for name in ALGORITHMS)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", ["all_reduce sum of float32, in place"]),
        ("--collective broadcast --place out -d half",
         ["broadcast of float16, out of place (a copy into another tensor, then the call)"]),
        ("--collective all_gather reduce_scatter -o max",
         ["all_gather of float32, out of place", "reduce_scatter max of float32, out of place"]),
        ("--collective all_gather --place both",
         ["all_gather of float32, out of place", "all_gather of float32, in place"]),
        ("--collective sendrecv barrier --place both", ["sendrecv of float32, out of place", "barrier"]),
    ],
)  # fmt: skip
def test_a_table_for_each_collective_and_place(line: str, expected: list[str]) -> None:
    assert [table.title for table in tables(parse(line.split()), 4)] == expected


@pytest.mark.parametrize(("option", "shown"), [("--version", "hpccomm 0."), ("--help", "2(n-1)/n")])
def test_help_and_version(option: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        parse([option])
    assert left.value.code == 0
    assert shown in capsys.readouterr().out


def test_help_gives_units_formulas_and_columns(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert text.isascii()
    for part in ("powers of 1024", "microseconds", "10^9 bytes", "2(k-1)/k x size", "128 + its number", *COLUMNS):
        assert part in text
    assert all(f"{one.formula} for" in text for one in COLLECTIVES.values() if one.has_data)


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
        ("-b 4 -e 64 --collective sendrecv", 3, [4, 16, 64]),
        ("-b 4 -e 64 --collective barrier", 3, [0]),
    ],
)
def test_sizes_hold_whole_elements_and_equal_shares(line: str, ranks: int, expected: list[int]) -> None:
    options = parse(line.split())
    itemsize = {"float32": 4, "float64": 8, "int8": 1}[options.dtype]
    assert sizes(tables(options, ranks)[0], options, itemsize=itemsize) == expected


def test_default_sizes_meet_the_usual_ones() -> None:
    found = sizes(tables(Options(), 32)[0], Options(), itemsize=4)
    assert {4, 64 << 10, 1 << 20, 16 << 20, 64 << 20} <= set(found)


def test_options_need_no_torch() -> None:
    program = "import sys, hpccomm.bench.__main__; sys.exit(bool({'torch', 'mpi4py', 'numpy'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, timeout=60, check=False).returncode == 0
