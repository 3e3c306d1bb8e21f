"""From an option's text to its value, for argparse; pure."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from hpccomm.errors import ExpressionError, OptionError
from hpccomm.expression import parse as parse_expression
from hpccomm.units import parse_bytes


def size(text: str) -> int:
    """Read a size of at least one byte."""
    try:
        found = parse_bytes(text)
    except OptionError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is {error.found}: {error.remedy}") from None
    return found if found else _refuse(text, "a size of at least one byte")


def number(least: int) -> Callable[[str], int]:
    """Give the reader of a whole number from `least`."""

    def read(text: str) -> int:
        fits = text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least
        return int(text) if fits else _refuse(text, f"a whole number from {least}")

    return read


def seconds(text: str) -> float:
    """Read a positive time in seconds."""
    found = _real(text)
    return found if 0 < found < 1e6 else _refuse(text, "a number of seconds above 0")


def percent(text: str) -> float:
    """Read a part of a whole; the sign must stand, as 10 may mean 10 or 1000 %."""
    found = _real(text.removesuffix("%"))
    return found / 100 if text.endswith("%") and 0 <= found < 1e6 else _refuse(text, "a percentage, such as 10%")


def switch(text: str) -> bool:
    """Read 1 or 0."""
    return text == "1" if text in ("0", "1") else _refuse(text, "1 or 0")


def backend(text: str) -> str:
    """Check an expression's spelling; a file is read later, by one rank for all."""
    try:
        return text if text.startswith("@") else str(parse_expression(text))
    except ExpressionError as error:
        raise argparse.ArgumentTypeError(f"{error.asked}\n    {error.found}; {error.remedy}") from None


def _real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return -1.0


def _refuse(text: str, wanted: str) -> Any:
    raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
