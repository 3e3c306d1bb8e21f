"""Files that are there whole or not at all, whenever somebody reads them or the process ends."""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hpccomm.liveness import Process, this_process

ABANDONED_S = 3600.0
"""Seconds without a write after which a process that cannot be seen, as one of another host, is taken to be gone."""

_MARK = re.compile(r"(\d+)-(\d+)-([0-9a-f]{16})", re.ASCII)


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a file beside a place to write to, and put it there in one step if all goes well; else it is deleted.

    Raises:
        OSError: It cannot be put there.
    """
    me = this_process()
    beside = path.with_name(f"{_beginning(path)}{me.pid}-{me.start_time}-{_digest(me.space)}")
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


def remove_left_over(path: Path) -> None:
    """Delete what `whole` has left beside a place where its process was killed; what cannot be deleted stays."""
    beginning = _beginning(path)
    with suppress(OSError):
        for file in [*path.parent.iterdir()]:
            mark = _MARK.fullmatch(file.name.removeprefix(beginning)) if file.name.startswith(beginning) else None
            with suppress(OSError):
                if mark and _is_left(file, mark):
                    file.unlink()


def _is_left(file: Path, mark: re.Match[str]) -> bool:
    """Tell whether nobody writes to a file any more, by its writer's mark."""
    me = this_process()
    if me.space.strip() and mark[3] == _digest(me.space):
        return Process(int(mark[1]), int(mark[2]), me.space).state == "dead"
    return time.time() - file.stat().st_mtime > ABANDONED_S


def _beginning(path: Path) -> str:
    return f".{path.name}."


def _digest(space: str) -> str:
    return hashlib.sha256(space.encode()).hexdigest()[:16]
