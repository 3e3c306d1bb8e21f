"""Files that are there whole or not at all, whenever somebody reads them or the process ends."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a text beside its place, and put it there in one step; in UTF-8.

    Raises:
        OSError: It cannot be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
