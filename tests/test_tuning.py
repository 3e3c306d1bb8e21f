"""Tuning tables: made of the benchmark's rows, written, read, and used where they fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpccomm.errors import OptionError
from hpccomm.tune.fastest import choices
from hpccomm.tuning import Setup, Tuning, load

SETUP = Setup((2, 2), "a processor", "cpu", "2.14.1", "Open MPI 5.0.11")
TUNING = Tuning(SETUP, {"all_reduce": [(0, "mpi4py"), (4096, "shm")], "broadcast": [(0, "gloo")]})


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
    assert choices(rows("all_reduce", **times)) == {"all_reduce": expected}


def test_a_table_needs_all_reduce() -> None:
    with pytest.raises(OptionError, match="no measured row of all_reduce"):
        choices(rows("broadcast", a=[1.0]) + rows("all_reduce", a=[None]))


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


def test_another_set_up_is_told() -> None:
    other = Setup((4,), "a processor", "cpu", "2.13.0", "Open MPI 5.0.11")
    assert SETUP.differences(SETUP) == []
    assert SETUP.differences(other) == ["nodes (2, 2) instead of (4,)", "torch 2.14.1 instead of 2.13.0"]
