"""A tuning table: which backend was fastest for which collective and size, on which set-up.

The file is JSON: ``{"hpccomm_tuning": 1, "setup": {…}, "choices": {"all_reduce": [[0, "mpi4py"], [262144, "shm"]]}}``;
an entry holds from its size in bytes up to the next one's. Beside the choices stand the times that they were made by.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpccomm.errors import ExpressionError, OptionError
from hpccomm.expression import parse

VERSION = 1
_OUTERMOST = ("failover", "checked")
_MARK = "hpccomm_tuning"

Choice = tuple[int, str]
Times = dict[int, dict[str, float]]
"""Microseconds by size in bytes and backend."""


@dataclass(frozen=True)
class Setup:
    """What the times of a table depend on.

    Attributes:
        nodes: Ranks of each node.
        processor: Of the first host.
        device: Where tensors live.
        torch: Version.
        mpi: Library and version, or ``none``.
    """

    nodes: tuple[int, ...]
    processor: str
    device: str
    torch: str
    mpi: str

    def differences(self, other: Setup) -> list[str]:
        """Say where it differs from another."""
        mine, theirs = asdict(self), asdict(other)
        return [f"{name} {mine[name]} instead of {theirs[name]}" for name in mine if mine[name] != theirs[name]]


@dataclass(frozen=True)
class Tuning:
    """A table.

    Attributes:
        setup: Where it was measured.
        choices: For each collective, sizes in bytes, ascending from 0, with the backend from there on.
        times: For each collective, what was measured; empty in tables of before this was kept.
    """

    setup: Setup
    choices: Mapping[str, Sequence[Choice]]
    times: Mapping[str, Times] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what must stand around a whole group's backend.

        Raises:
            OptionError: A backend is, or holds, such a one.
        """
        for backend in self.backends():
            whole = [node.name for _, node in parse(backend).walk() if node.name in _OUTERMOST]
            if whole:
                raise OptionError(
                    f"choose {backend} for some sizes",
                    found=f"{whole[0]} sees to all operations of a group, and keeps count of them",
                    remedy="measure what stands inside it, and put it around auto",
                )

    def backend(self, collective: str, size_bytes: int) -> str:
        """Give the fastest backend; a collective that is not in the table goes as all_reduce does."""
        choices = self.choices.get(collective) or self.choices["all_reduce"]
        return choices[bisect_right([start for start, _ in choices], size_bytes) - 1][1]

    def backends(self) -> list[str]:
        """Give every backend that is chosen for something, in the order of the table."""
        return list(dict.fromkeys(backend for choices in self.choices.values() for _, backend in choices))

    def text(self) -> str:
        """Give the file's content."""
        content = {_MARK: VERSION, "setup": asdict(self.setup), "choices": self.choices, "times": self.times}
        return json.dumps(content, indent=1) + "\n"


def load(path: Path) -> Tuning:
    """Read a table.

    Raises:
        OptionError: It cannot be read, or is no tuning table.
    """
    try:
        return _table(json.loads(path.read_text()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ExpressionError) as error:
        raise OptionError(
            f"read the tuning table {path}",
            found=f"{type(error).__name__}: {error}",
            remedy="make one: python -m hpccomm.tune, started as the program is",
        ) from error


def _table(content: Mapping[str, Any]) -> Tuning:
    if content[_MARK] != VERSION:
        raise ValueError(f"version {content[_MARK]} of such tables, not {VERSION}")
    setup = content["setup"]
    choices = {
        str(collective): [(int(start), str(parse(backend))) for start, backend in entries]
        for collective, entries in content["choices"].items()
    }
    for collective, entries in {"all_reduce": choices["all_reduce"], **choices}.items():
        starts = [start for start, _ in entries]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError(f"the sizes of {collective} do not ascend from 0")
    times = {
        str(collective): {
            int(size): {str(backend): float(time_us) for backend, time_us in of_size.items()}
            for size, of_size in of_collective.items()
        }
        for collective, of_collective in content.get("times", {}).items()
    }
    return Tuning(Setup(**{**setup, "nodes": tuple(setup["nodes"])}), choices, times)
