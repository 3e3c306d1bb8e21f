"""The doctor's reading of flight records: what it makes of each way in which ranks diverge, and what it refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import ROOT
from hpccomm.doctor.__main__ import main
from hpccomm.doctor.flight import Finding, Kind, judge, merge
from hpccomm.doctor.flight_records import load
from hpccomm.errors import OptionError

CLOCK_S = 100.0
RANKS = (0, 1, 2, 3)


def op(sequence: int, state: str = "done", collective: str = "all_reduce", **changed: Any) -> dict[str, Any]:
    """Make an operation that was called 60 s ago, less a second for each number."""
    posted = CLOCK_S - 60 + sequence
    ended = None if state in ("waiting", "queued") else posted + 0.5
    written = {"sequence": sequence, "collective": collective, "count": 1000, "dtype": "float32"}
    return {**written, "posted_s": posted, "ended_s": ended, "state": state, "waiting_for": "", **changed}


def done(*sequences: int) -> list[dict[str, Any]]:
    return [op(sequence) for sequence in sequences]


def group(*operations: dict[str, Any], started: int | None = None, **changed: Any) -> dict[str, Any]:
    numbers = [one["sequence"] for one in operations if one["collective"] not in ("send", "recv")]
    reached = max(numbers, default=0) if started is None else started
    written = {"name": "world", "expression": "mpi4py", "ranks": [*RANKS], "started": reached}
    return {**written, "operations": operations, **changed}


def record(rank: int, *groups: dict[str, Any], **changed: Any) -> dict[str, Any]:
    written = {"version": 1, "rank": rank, "size": 4, "job": "", "host": "vm", "pid": 1000 + rank, "why": "SIGUSR2"}
    return {**written, "written_at": 1.8e9, "clock_s": CLOCK_S, "groups": groups, **changed}


def write(folder: Path, *records: dict[str, Any] | None) -> Path:
    """Write each rank's record; None leaves no file."""
    for rank, one in enumerate(records):
        if one is not None:
            (folder / f"rank{rank}.json").write_text(json.dumps(one))
    return folder


def one_group(folder: Path, *operations: list[dict[str, Any]] | None) -> Finding:
    """Judge a group of whose ranks each did these operations; None leaves no file."""
    records = [None if each is None else record(rank, group(*each)) for rank, each in enumerate(operations)]
    (found,) = merge(load(write(folder, *records))).groups
    return judge(found)


def said(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = main(["--flight", str(folder)])
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    return status, [line for line in lines if line]


WAITS = [op(1), op(2, "waiting")]
STOPPED = [op(1)]
LONGER = op(2, "waiting", count=1001)
GATHERS = op(2, "waiting", "all_gather")
RECEIVES = op(7, "waiting", "recv", waiting_for="rank 0")


@pytest.mark.parametrize(
    ("ranks", "kind", "sequence", "culprits"),
    [
        # (a) called different things
        pytest.param([WAITS, WAITS, WAITS, [op(1), GATHERS]], Kind.DIFFERENT, 2, (), id="other collective"),
        pytest.param([WAITS, WAITS, WAITS, [op(1), LONGER]], Kind.DIFFERENT, 2, (), id="other count"),
        pytest.param([WAITS, WAITS, [op(1), op(2, dtype="int8")], WAITS], Kind.DIFFERENT, 2, (), id="other dtype"),
        pytest.param([[op(1), op(2, count=5), op(3)], done(1, 2, 3)] * 2, Kind.DIFFERENT, 2, (), id="done, different"),
        pytest.param([WAITS, [op(1), op(2, "failed", count=5)]] * 2, Kind.DIFFERENT, 2, (), id="different, failed"),
        pytest.param([[*WAITS, op(3, "queued")], [*WAITS, op(3, "queued", "barrier")]] * 2, Kind.DIFFERENT, 3, (),
                     id="different in the queue"),
        # (b) never came
        pytest.param([WAITS, STOPPED, WAITS, WAITS], Kind.ABSENT, 2, (1,), id="one stopped"),
        pytest.param([WAITS, STOPPED, [], []], Kind.ABSENT, 1, (2, 3), id="the earliest counts"),
        pytest.param([done(5, 6), done(1, 2), done(5, 6), done(5, 6)], Kind.ABSENT, 3, (1,), id="others far ahead"),
        pytest.param([WAITS, [op(1), RECEIVES], WAITS, WAITS], Kind.ABSENT, 2, (1,), id="in recv instead"),
        pytest.param([WAITS, [op(1, "waiting")], WAITS, WAITS], Kind.ABSENT, 2, (1,), id="still in the one before"),
        pytest.param([[op(1), op(2, "failed")], STOPPED, WAITS, WAITS], Kind.ABSENT, 2, (1,), id="and another failed"),
        pytest.param([WAITS, STOPPED, WAITS, None], Kind.ABSENT, 2, (1,), id="and another wrote nothing"),
        # (c) failed
        pytest.param([WAITS, WAITS, [op(1), op(2, "failed")], WAITS], Kind.FAILED, 2, (2,), id="one failed"),
        pytest.param([[op(1), op(2, "failed")]] * 4, Kind.FAILED, 2, RANKS, id="all failed"),
        pytest.param([[op(1, "failed"), op(2)]] * 4, Kind.DONE, 2, (), id="all refused and went on"),
        pytest.param([STOPPED, [op(1), op(4, "failed", "send")], STOPPED, STOPPED], Kind.FAILED, None, (1,),
                     id="a send failed"),
        pytest.param([WAITS, [*WAITS, op(3, "failed")], WAITS, WAITS], Kind.FAILED, 3, (1,),
                     id="failed in the queue"),
        # (d) all the same
        pytest.param([WAITS] * 4, Kind.WAITING, 2, (), id="all wait"),
        pytest.param([[op(1, "waiting"), op(2, "queued")], [op(1, "waiting")]] * 2, Kind.WAITING, 1, (),
                     id="all wait, some have queued more"),
        pytest.param([done(1, 2), WAITS, WAITS, WAITS], Kind.WAITING, 2, (), id="one has left it"),
        pytest.param([done(1, 2)] * 4, Kind.DONE, 2, (), id="all done"),
        pytest.param([[]] * 4, Kind.DONE, 0, (), id="nothing called"),
        pytest.param([done(1, 2), done(2), [op(2), RECEIVES], done(1, 2)], Kind.DONE, 2, (), id="some records shorter"),
        pytest.param([[op(1), op(9, "done", "send", count=3)], [op(1), op(9, "waiting", "recv")]] * 2, Kind.DONE, 1, (),
                     id="send and recv are not compared"),
        # no file
        pytest.param([WAITS, WAITS, None, WAITS], Kind.MISSING, 2, (2,), id="all others wait"),
        pytest.param([[op(1), op(2, "failed")], None] * 2, Kind.MISSING, 2, (1, 3), id="all others failed"),
        pytest.param([STOPPED, STOPPED, None, STOPPED], Kind.DONE, 1, (), id="all others done"),
    ],
)  # fmt: skip
def test_the_judgement(
    tmp_path: Path, ranks: list[Any], kind: Kind, sequence: int | None, culprits: tuple[int, ...]
) -> None:
    finding = one_group(tmp_path, *ranks)
    assert (finding.kind, finding.sequence, finding.ranks) == (kind, sequence, culprits)
    assert finding.diverges == (kind not in (Kind.WAITING, Kind.DONE))


@pytest.mark.parametrize(
    ("collective", "kind"),
    [
        *((name, Kind.DIFFERENT) for name in ("all_reduce", "broadcast", "reduce", "barrier")),
        *((name, Kind.WAITING) for name in ("all_gather", "reduce_scatter", "scatter", "gather", "all_to_all")),
    ],
)
def test_counts_must_be_equal_only_where_blocks_cannot_differ(tmp_path: Path, collective: str, kind: Kind) -> None:
    ranks = [[op(1, "waiting", collective, count=10 + rank)] for rank in RANKS]
    assert one_group(tmp_path, *ranks).kind is kind


def test_a_difference_at_the_edge_of_the_records_may_be_older(tmp_path: Path) -> None:
    assert one_group(tmp_path, *[[op(7), LONGER | {"sequence": 8}], done(8)] * 2).maybe_earlier
    assert not one_group(tmp_path, *[[op(7), LONGER | {"sequence": 8}], done(7, 8)] * 2).maybe_earlier
    assert not one_group(tmp_path, *[[op(1, count=2)], done(1)] * 2).maybe_earlier


def test_a_difference_in_the_queue_says_where_all_are_inside(tmp_path: Path) -> None:
    finding = one_group(tmp_path, *[[*WAITS, op(3, "queued")], [*WAITS, op(3, "queued", "barrier")]] * 2)
    assert finding.inside == 2


@pytest.mark.parametrize(("last", "kind"), [(op(1, "waiting"), Kind.ABSENT), (op(1), Kind.DONE)])
def test_a_rank_without_the_group_matters_while_others_wait_in_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], last: dict[str, Any], kind: Kind
) -> None:
    records = [record(rank, group(last)) for rank in RANKS[:3]]
    flight = merge(load(write(tmp_path, *records, record(3))))
    finding = judge(flight.groups[0])
    assert (finding.kind, finding.ranks) == (kind, (3,) if kind is Kind.ABSENT else ())
    assert finding.group.strangers == (3,)
    assert any("has no such group" in line for line in said(tmp_path, capsys)[1])


def test_groups_are_told_apart_by_members_and_by_turn(tmp_path: Path) -> None:
    halves = [group(op(1), name="node", ranks=[rank // 2 * 2, rank // 2 * 2 + 1]) for rank in RANKS]
    again = [group(op(1, count=rank), name="node", ranks=half["ranks"]) for rank, half in enumerate(halves)]
    records = [record(rank, *pair) for rank, pair in enumerate(zip(halves, again, strict=True))]
    groups = merge(load(write(tmp_path, *records))).groups
    assert [(one.ranks, judge(one).kind) for one in groups] == [
        ((0, 1), Kind.DONE),
        ((0, 1), Kind.DIFFERENT),
        ((2, 3), Kind.DONE),
        ((2, 3), Kind.DIFFERENT),
    ]


def test_different_backends_in_one_group(tmp_path: Path) -> None:
    records = [record(rank, group(op(1), expression="gloo" if rank else "mpi4py")) for rank in RANKS]
    assert judge(merge(load(write(tmp_path, *records))).groups[0]).kind is Kind.BACKENDS


def test_report_of_a_rank_that_never_came(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waits = [op(1), op(2, "waiting", waiting_for="rank 1")]
    records = [record(rank, group(*(waits if rank != 1 else [op(1), RECEIVES]), name="tp")) for rank in RANKS]
    assert said(write(tmp_path, *records), capsys) == (1, [
        "flight records of 4 of 4 ranks (SIGUSR2), written within 0 ms by their hosts' clocks",
        "group tp, ranks 0-3, mpi4py: DIVERGES in operation 2: rank 1 never came",
        "  rank   operation  called                      state                  since   meanwhile in",
        "  0,2-3  2          all_reduce of 1000 float32  waiting for rank 1     58 s",
        "  1      1          all_reduce of 1000 float32  done; came no further  58.5 s  recv 7 of group tp for rank 0",
        "  rank 1 is process 1001 on vm",
        "  rank 1: recv 7 waiting for rank 0, since 53 s",
        "ranks diverge in 1 of 1 group: tp",
    ])  # fmt: skip


def test_report_of_different_calls_and_of_a_rank_without_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record(0, group(*WAITS)), record(1, group(op(1), GATHERS)), record(2, group(*WAITS), clock_s=101), None]
    assert said(write(tmp_path, *records), capsys) == (1, [
        "flight records of 3 of 4 ranks (SIGUSR2), written within 0 ms by their hosts' clocks",
        "NO RECORD of rank 3: killed, or could not write",
        "group world, ranks 0-3, mpi4py: DIVERGES in operation 2: ranks called different things",
        "  rank  operation  called                      state           since",
        "  0,2   2          all_reduce of 1000 float32  waiting         58 s to 59 s",
        "  1     2          all_gather of 1000 float32  waiting         58 s",
        "  3                                            left no record",
        "  rank 3 left no record, and may be the cause",
        "ranks diverge in 1 of 1 group: world",
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("ranks", "status", "words"),
    [
        ([WAITS] * 4, 0, "nothing diverges: all ranks are inside operation 2; if that lasts"),
        ([done(1, 2), WAITS, WAITS, WAITS], 0, "nothing diverges: all ranks came, ranks 1-3 still inside operation 2"),
        ([STOPPED] * 4, 0, "nothing diverges: all ended, up to operation 1"),
        ([[]] * 4, 0, "nothing diverges: nothing was called"),
        ([STOPPED, STOPPED, None, STOPPED], 1, "nothing diverges in 1 group among the ranks that left a record"),
        ([WAITS, WAITS, None, WAITS], 1, "DIVERGES in operation 2: nothing is known of rank 2, all others came"),
        ([WAITS, WAITS, [op(1), op(2, "failed")], WAITS], 1, "DIVERGES in operation 2: failed on rank 2"),
        ([STOPPED, [op(1), op(4, "failed", "send")]] * 2, 1, "DIVERGES in a send or recv: failed on ranks 1,3"),
        ([done(5, 6), [op(1)], done(5, 6), done(5, 6)], 1, "not in its record; it reached 6"),
    ],
)
def test_status_and_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ranks: list[Any], status: int, words: str
) -> None:
    records = [None if each is None else record(rank, group(*each)) for rank, each in enumerate(ranks)]
    found, lines = said(write(tmp_path, *records), capsys)
    assert found == status
    assert words in "\n".join(lines)


@pytest.mark.parametrize(
    ("state", "apart_s", "moved"), [("waiting", 90, True), ("waiting", 9, False), ("failed", 9, False)]
)
def test_records_far_apart_may_show_ranks_in_passing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], state: str, apart_s: int, moved: bool
) -> None:
    ranks = [[op(1)] if rank == 1 else [op(1), op(2, state)] for rank in RANKS]
    records = [record(rank, group(*ranks[rank]), written_at=1.8e9 + apart_s * (rank == 1)) for rank in RANKS]
    _, lines = said(write(tmp_path, *records), capsys)
    assert "rank 1 never came" in "".join(lines)
    assert any("may just have moved on" in line for line in lines) == moved


FIT = record(0, group(*WAITS))


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({}, "no file rank<N>.json in it"),
        ({"rank0.json": "{"}, "JSONDecodeError"),
        ({"rank0.json": "[]"}, "version None, known here: 1"),
        ({"rank0.json": FIT | {"version": 2}}, "version 2, known here: 1"),
        ({"rank0.json": FIT, "rank1.json": FIT}, "the record of rank 0 of 4 in the file of rank 1"),
        ({"rank4.json": FIT | {"rank": 4}}, "the record of rank 4 of 4 in the file of rank 4"),
        ({"rank0.json": FIT, "rank1.json": record(1, size=8)},
         "ranks of different jobs: size 4 by rank 0, size 8 by rank 1"),
        ({"rank0.json": FIT | {"clock_s": None}}, "clock_s of the record is None, not a whole number or a number"),
        ({"rank0.json": FIT | {"clock_s": float("nan")}}, "clock_s of the record is nan"),
        ({"rank0.json": FIT | {"size": True}}, "size of the record is True, not a whole number"),
        ({"rank0.json": {key: FIT[key] for key in FIT if key != "pid"}}, "the record has no pid"),
        ({"rank0.json": record(0, group(ranks=[1, 2]))}, "groups[0] has ranks [1, 2], not different ranks below"),
        ({"rank0.json": record(0, group(ranks=[0, 4]))}, "groups[0] has ranks [0, 4]"),
        ({"rank0.json": record(0, group(op(1, "lost")))}, "groups[0].operations[0] has state 'lost'"),
        ({"rank0.json": record(0, group() | {"operations": [3]})}, "groups[0].operations[0] is no object"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, files: dict[str, Any], found: str) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(OptionError) as refused:
        load(tmp_path)
    assert refused.value.found.startswith(found)
    assert str(tmp_path) in refused.value.asked


def test_other_files_are_passed_over_and_barriers_may_have_no_data(tmp_path: Path) -> None:
    (tmp_path / "rank1.json.part").write_text("{")
    write(tmp_path, record(0, group(op(1, collective="barrier", count=None, dtype=None)), more=1))
    assert [one.rank for one in load(tmp_path)] == [0]


def doctor(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hpccomm.doctor", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_the_command(tmp_path: Path) -> None:
    ran = doctor("--flight")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("usage: python -m hpccomm.doctor")
    ran = doctor("--flight", str(tmp_path / "none"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.splitlines()[1:2] == ["  found: No such file or directory"]
    ran = doctor("--flight", str(write(tmp_path, *(record(rank, group(*WAITS)) for rank in RANKS))))
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.isascii() and "\x1b" not in ran.stdout
