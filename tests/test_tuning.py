"""Tuning tables: made of the benchmark's rows, written, read, and used where they fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpccomm.errors import OptionError
from hpccomm.tune import __main__ as tune
from hpccomm.tune.explain import explain, pick, summed
from hpccomm.tune.fastest import choices, measured
from hpccomm.tuning import Setup, Tuning, load

SETUP = Setup((2, 2), "a processor", "cpu", "2.14.1", "Open MPI 5.0.11")
TUNING = Tuning(
    SETUP, {"all_reduce": [(0, "mpi4py"), (4096, "shm")], "broadcast": [(0, "gloo")]}, {"all_reduce": {4: {"shm": 1.5}}}
)


def rows(collective: str, **times: list[float | None]) -> list[dict[str, object]]:
    """Give rows of 4, 16, 64, … bytes."""
    return [
        {"collective": collective, "backend": backend, "size_bytes": 4 ** (number + 1), "time_us_median": time}
        for backend, column in times.items()
        for number, time in enumerate(column)
    ]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"a": [1, 2, 3], "b": [2, 3, 4]}, [(0, "a")]),
        ({"a": [1, 2, 9], "b": [2, 3, 4]}, [(0, "a"), (32, "b")]),
        ({"a": [3, 2, 9], "b": [2, 3, 4]}, [(0, "b"), (8, "a"), (32, "b")]),
        ({"a": [1, 2.02, 3], "b": [2, 2, 3.2]}, [(0, "a")]),
        ({"a": [1, None, 3], "b": [2, 3, 4]}, [(0, "a"), (8, "b"), (32, "a")]),
    ],
)
def test_the_fastest_is_chosen_by_more_than_noise(times: dict[str, list[float | None]], expected: object) -> None:
    assert choices(measured(rows("all_reduce", **times))) == {"all_reduce": expected}


def test_a_table_needs_all_reduce() -> None:
    with pytest.raises(OptionError, match="no measured row of all_reduce"):
        measured(rows("broadcast", a=[1.0]) + rows("all_reduce", a=[None]))


def test_a_table_is_read_as_it_was_written_and_gives_backends_by_size(tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(TUNING.text())
    read = load(file)
    assert read == TUNING
    assert read.backends() == ["mpi4py", "shm", "gloo"]
    asked = [("all_reduce", 4095), ("all_reduce", 4096), ("broadcast", 2**40), ("gather", 0)]
    assert [read.backend(*one) for one in asked] == ["mpi4py", "shm", "gloo", "mpi4py"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-9],
        lambda text: text.replace('"hpccomm_tuning": 1', '"hpccomm_tuning": 2'),
        lambda text: text.replace("4096", "0"),
        lambda text: text.replace('"shm"', '"shm(("'),
        lambda text: text.replace('"all_reduce"', '"reduce"'),
        lambda text: text.replace('"torch"', '"pytorch"'),
    ],
)
def test_a_damaged_table_is_refused(damage: object, tmp_path: Path) -> None:
    file = tmp_path / "tuning.json"
    file.write_text(damage(TUNING.text()))  # type: ignore[operator]
    with pytest.raises(OptionError, match=r"tuning\.json"):
        load(file)


@pytest.mark.parametrize("backend", ("failover(shm, gloo)", "checked(gloo)"))
def test_what_stands_around_a_group_is_no_choice(backend: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="keeps count"):
        Tuning(SETUP, {"all_reduce": [(0, "gloo"), (4096, backend)]})
    file = tmp_path / "tuning.json"
    file.write_text(TUNING.text().replace('"shm"', f'"{backend}"'))
    with pytest.raises(OptionError, match=r"tuning\.json"):
        load(file)


def test_another_set_up_is_told() -> None:
    other = Setup((4,), "a processor", "cpu", "2.13.0", "Open MPI 5.0.11")
    assert SETUP.differences(SETUP) == []
    assert SETUP.differences(other) == ["nodes (2, 2) instead of (4,)", "torch 2.14.1 instead of 2.13.0"]


MIB = 1 << 20
ALL_REDUCE = {
    4: {"mpi4py": 2.0, "gloo": 100.0},
    MIB: {"mpi4py": 1000.0, "gloo": 800.0},
    4 * MIB: {"mpi4py": 2000.0, "gloo": 1000.0},
    16 * MIB: {"mpi4py": 4000.0, "gloo": 3800.0},
}


def test_a_piece_is_the_smallest_that_comes_near_the_highest_rate() -> None:
    found = pick(ALL_REDUCE)  # 4 MiB in 1000 us are 95 % of 16 MiB in 3800 us
    assert (found.backend, found.size_bytes, found.others) == ("gloo", 4 * MIB, {"mpi4py": 2.0})
    assert (found.highest_bytes, found.last_bytes) == (16 * MIB, 16 * MIB)
    assert found.gbps / found.highest_gbps == pytest.approx(0.95)


def test_calls_are_summed_where_all_were_measured() -> None:
    times = {"all_gather": {8: {"a": 1.0, "b": 2.0}, 64: {"a": 3.0}}, "reduce_scatter": {8: {"a": 5.0}, 64: {"b": 1.0}}}
    assert summed(times, {"all_gather": 2, "reduce_scatter": 1}) == {8: {"a": 7.0}}


@pytest.mark.parametrize(
    ("nodes", "tensor"),
    [
        ((4,), "mpi4py from 0 B, gloo from 2 MiB: all_reduce takes 2.00 us at 4 B and 3800 us at 16 MiB"),
        ((2, 3), "keep it inside a node; measure python -m hpccomm.tune on 2 ranks of one node"),
        ((1, 1), "keep it inside a node; here a node has one rank alone. Over 2 nodes"),
    ],
)
def test_advice_for_training_by_what_was_measured(nodes: tuple[int, ...], tensor: str) -> None:
    times = {"all_reduce": ALL_REDUCE, "all_gather": ALL_REDUCE, "reduce_scatter": ALL_REDUCE}
    chosen = {"all_reduce": [(0, "mpi4py"), (2 * MIB, "gloo")]}
    found = explain(Tuning(Setup(nodes, "a processor", "cpu", "2.14.1", "none"), chosen, times))
    assert list(found) == ["DDP", "FSDP", "TP", "PP"]
    assert found["DDP"].startswith(
        "gloo, bucket_cap_mb=4: 4.19 GB/s, at most 4.42 (at 16 MiB, the largest that was measured); mpi4py"
    )
    assert found["FSDP"].startswith("gloo, units of 4 MiB of parameters, by 2 all_gather + reduce_scatter")
    assert found["TP"].startswith(tensor)
    assert found["PP"].startswith("not measured: name sendrecv")


def test_large_buckets_and_what_lacks_are_told_in_full() -> None:
    found = explain(Tuning(SETUP, {"all_reduce": [(0, "gloo")]}, {"all_reduce": {1024 * MIB: {"gloo": 1.0}}}))
    assert found["DDP"].startswith("gloo, bucket_cap_mb=1024: ")
    assert found["FSDP"].startswith("not measured: name all_gather and reduce_scatter among --collective")


def test_a_table_without_times_explains_nothing() -> None:
    with pytest.raises(OptionError, match="no times of all_reduce"):
        explain(Tuning(SETUP, {"all_reduce": [(0, "mpi4py")]}))


def test_explaining_refuses_what_only_measuring_takes(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main(["--explain", "--tabel", "other.json"], {}) == 1
    assert "--tabel other.json beside --explain" in capsys.readouterr().err


@pytest.mark.parametrize("given", [["--collective", "all_reduce"], ["--collective=all_reduce"], []], ids=" ".join)
def test_the_collectives_are_those_that_are_given(given: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []
    monkeypatch.setattr(tune, "measure", lambda options, environ: measured.extend(options) or 1)
    assert tune.main([*given, "--table", "folder/table.json"], {}) == 1
    assert Path(measured[-1]).parent == Path("folder")
    assert [word for word in measured if word in tune._COLLECTIVES or "=" in word] == (
        given[-1:] or [*tune._COLLECTIVES]
    )
