"""Any text as one word, for sbatch's #SBATCH lines and for bash; what they cannot hold is refused."""

from __future__ import annotations

import re

from hpccomm.errors import OptionError
from hpccomm.jobs.fields import ASKED

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_LONGEST = 1000  # sbatch reads each option into a buffer of fixed size
_ESCAPED = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "'": r"\'", "\\": r"\\"}


def sbatch_word(name: str, text: str) -> str:
    """Write a text as sbatch reads it back: in double quotes, in which a backslash keeps the next character.

    Args:
        name: Of the field, for errors.
        text: The value.

    Raises:
        OptionError: An #SBATCH line cannot hold it.
    """
    _refuse_unwritable(name, text)
    faults = (
        (not text, "nothing", "leave it out"),
        (any(_is_control(one) for one in text), "a line break or another control character",
         "an #SBATCH line cannot hold it; choose another text"),
        (len(text.encode()) > _LONGEST, f"{len(text.encode())} bytes", f"give at most {_LONGEST}"),
    )  # fmt: skip
    for is_so, found, remedy in faults:
        if is_so:
            raise _error(name, text, found, remedy)
    return text if _PLAIN.fullmatch(text) else '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def shell_word(name: str, text: str) -> str:
    """Write a text as one word of bash, on one line.

    Args:
        name: Of the field, for errors.
        text: The value.

    Raises:
        OptionError: No argument of a command can hold it.
    """
    _refuse_unwritable(name, text)
    if _PLAIN.fullmatch(text):
        return text
    if not any(_is_control(one) for one in text):
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_escaped, text)) + "'"


def shell_array(name: str, texts: tuple[str, ...]) -> str:
    """Write texts as an array of bash."""
    return f"({' '.join(shell_word(name, text) for text in texts)})"


def _escaped(one: str) -> str:
    return _ESCAPED.get(one) or (f"\\{ord(one):03o}" if _is_control(one) else one)


def _is_control(one: str) -> bool:
    return one < " " or one == "\x7f"


def _refuse_unwritable(name: str, text: str) -> None:
    if "\0" in text:
        raise _error(name, text, "a character of value 0", "remove it; no text of a script can hold it")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise _error(name, text, "no valid Unicode text", "choose another text") from None


def _error(name: str, text: str, found: str, remedy: str) -> OptionError:
    shown = ascii(text if len(text) <= 60 else f"{text[:57]}...")
    return OptionError(f"{ASKED} with {name} {shown}", found=found, remedy=remedy)
