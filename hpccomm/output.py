"""Write a command's text to standard output, which may be closed, full, or read by nobody."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress


def write(text: str, *, program: str, what: str = "", status: int = 0) -> int:
    """Write a text, and give the exit status: as given, or 2 where nobody can read the text.

    Args:
        text: The text, with the end of its last line.
        program: Who says on standard error that it cannot be written.
        what: What it is, in that line.
        status: The status where it is written, or its reader has seen enough.
    """
    try:
        if sys.stdout is None:  # closed
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        print(text, end="", flush=True)
    except UnicodeEncodeError as error:
        lacking = ascii(error.object[error.start : error.end])
        return _fail(program, what, f"its encoding, {error.encoding}, has no {lacking}")
    except OSError as error:
        if sys.stdout is not None:  # what is left of the text must not be written at the interpreter's end
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            return _fail(program, what, error.strerror)
    return status


def _fail(program: str, what: str, why: str | None) -> int:
    with suppress(OSError):
        print(f"{program}: cannot write {what}to standard output: {why}", file=sys.stderr)
    return 2
