"""What a call returned, and how it is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from hpccomm.polling import until

LONG = timedelta(seconds=10)


def works(returned: Any) -> list[Any]:
    """Give the works of a call; none where torch has waited already."""
    if returned is None:
        return []
    return list(returned) if isinstance(returned, Sequence) else [returned]


def wait(work: Any, way: str) -> None:
    """Wait for the end of an operation.

    Args:
        work: The operation.
        way: ``wait``, ``timeout``, ``poll`` or ``future``.
    """
    if way == "poll" and hasattr(work, "is_completed"):
        until(work.is_completed)
    if way == "future" and hasattr(work, "get_future"):
        work.get_future().wait()
    if way == "timeout" and hasattr(work, "is_completed"):
        work.wait(LONG)
    work.wait()
