"""Fields and remarks as lines of text, and text that stands out; pure."""

from __future__ import annotations

import textwrap

WIDTH = 100


def field(name: str, text: str) -> list[str]:
    """Give a name and what belongs to it."""
    return textwrap.wrap(f"{name:<9} {text}", WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False)


def note(text: str, indent: str = "  ") -> list[str]:
    """Give a remark, whose further lines are indented more."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def strong(text: str, bold: bool) -> str:
    """Mark text as bold for a terminal that shows it."""
    return f"\x1b[1m{text}\x1b[0m" if bold else text
