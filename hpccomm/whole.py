"""Files that are there whole or not at all, whenever somebody reads them or the process ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a file beside a place to write to, and put it there in one step if all goes well; else it is deleted.

    Raises:
        OSError: It cannot be put there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield beside
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def write_whole(path: Path, text: str) -> None:
    """Write a text beside its place, and put it there in one step; in UTF-8.

    Raises:
        OSError: It cannot be written.
    """
    with whole(path) as beside:
        beside.write_text(text, encoding="utf-8")
