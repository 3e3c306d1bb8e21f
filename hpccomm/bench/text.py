"""Fields and remarks as lines of text, and text that stands out; pure."""

from __future__ import annotations

import textwrap

WIDTH = 100
_BOLD, _END = "\x1b[1m", "\x1b[0m"


def field(name: str, text: str) -> list[str]:
    """Give a name and what belongs to it."""
    return textwrap.wrap(f"{name:<9} {text}", WIDTH, subsequent_indent=" " * 10, break_on_hyphens=False)


def note(text: str, indent: str = "  ") -> list[str]:
    """Give a remark, whose further lines are indented more."""
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False)


def strong(text: str) -> str:
    """Mark text as bold; `plain` takes the mark away where a terminal does not show it."""
    return f"{_BOLD}{text}{_END}"


def plain(text: str) -> str:
    """Take marks of bold text away."""
    return text.replace(_BOLD, "").replace(_END, "")
