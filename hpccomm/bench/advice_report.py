"""Warnings as lines of text, for below the tables; pure."""

from __future__ import annotations

from collections.abc import Sequence

from hpccomm.bench.page.advice.rule import Advice
from hpccomm.bench.text import field

_ALIKE = 3  # of more figures than this with the same reason and setting, the rest is counted


def lines(found: Sequence[Advice]) -> list[str]:
    """Give figure, reason and setting of each warning; those that share the latter two are one."""
    figures: dict[tuple[str, str], list[str]] = {}
    for one in found:
        figures.setdefault((one.reason, one.setting), []).append(one.figure)
    shown = [
        line
        for (reason, setting), alike in figures.items()
        for line in field("warning", f"{_first(alike)}. Why: {reason}. Do: {setting}.")
    ]
    return ["", *shown] if shown else []


def _first(figures: Sequence[str]) -> str:
    left = len(figures) - _ALIKE
    return "; ".join(figures[:_ALIKE]) + f"; and {left} more" * (left > 0)
